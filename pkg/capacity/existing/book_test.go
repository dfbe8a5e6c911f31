// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package existing_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/planner"
)

func TestPromisedNodes(t *testing.T) {
	you := capacity.Owner{Namespace: "theirs", Name: "other", UID: "uid-2"}
	plan := &planner.Plan{NodeNames: []string{"n"}, GPUsPerNode: 3, CPUs: 4, MemoryGiB: 100, DiskGiB: 60}
	yours, mine := existing.PromiseOf(you, plan), existing.PromiseOf(me, plan)
	arrived := pod("n", asks("2", "1", "10Gi", ""), func(p *corev1.Pod) { p.Labels = map[string]string{v1beta1.LabelWorkspace: "other"} })
	for _, tc := range []struct {
		reason   string
		pods     []corev1.Pod
		promised []existing.Promise
		gpus     int
		disk     float64
	}{
		{"nobody was promised anything", nil, nil, 8, 100},
		{"who was promised a node is on the way", nil, []existing.Promise{yours}, 5, 40},
		{"what was promised twice is taken once", nil, []existing.Promise{yours, yours}, 5, 40},
		{"who has arrived is counted as the pod that it is", []corev1.Pod{arrived}, []existing.Promise{yours}, 6, 100},
		{"a pod of the same name elsewhere has not arrived here", []corev1.Pod{pod("m", asks("2", "", "", ""))}, []existing.Promise{yours}, 5, 40},
		{"our own is for us", nil, []existing.Promise{mine}, 8, 100},
		{"other nodes are other nodes", nil, []existing.Promise{existing.PromiseOf(you, &planner.Plan{NodeNames: []string{"m"}, GPUsPerNode: 8})}, 8, 100},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := candidates(t, []corev1.Node{node("n")}, tc.pods, existing.Ask{Promised: tc.promised})[0]
			if got.FreeGPUs != tc.gpus || got.FreeDiskGiB != tc.disk {
				t.Errorf("%d GPUs and %v GiB of disk are free, want %d and %v", got.FreeGPUs, got.FreeDiskGiB, tc.gpus, tc.disk)
			}
		})
	}
}

// owner returns one of many owners.
func owner(i int) capacity.Owner {
	return capacity.Owner{Namespace: "n", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))}
}

// TestBookPromisesEachGPUOnce: many Workspaces plan at once onto one node with eight GPUs. Eight of them get one GPU
// each.
func TestBookPromisesEachGPUOnce(t *testing.T) {
	var book existing.Book
	var mu sync.Mutex
	var all sync.WaitGroup
	got := 0
	for i := range 20 {
		all.Go(func() {
			book.Plan(time.Now(), owner(i), nil, func(promised []existing.Promise) existing.Promise {
				nodes, err := existing.Candidates([]corev1.Node{node("n")}, nil, echo{}, existing.Ask{Owner: owner(i), Promised: promised})
				if err != nil || nodes[0].FreeGPUs == 0 {
					return existing.Promise{}
				}
				mu.Lock()
				defer mu.Unlock()
				got++
				return existing.PromiseOf(owner(i), &planner.Plan{NodeNames: []string{"n"}, GPUsPerNode: 1})
			})
		})
	}
	all.Wait()
	if got != 8 {
		t.Errorf("%d were promised a GPU, want 8", got)
	}
}

func TestBookForgets(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	promise := func(i int, nodes ...string) existing.Promise {
		return existing.Promise{Owner: owner(i), Nodes: nodes, GPUs: 1}
	}
	for _, tc := range []struct {
		reason string
		after  time.Duration
		again  *existing.Promise
		want   []existing.Promise
	}{
		{"what was promised lately counts beside the accepted plans", 0, nil, []existing.Promise{promise(1, "a"), promise(9, "z")}},
		{"it counts for a minute", time.Minute, nil, []existing.Promise{promise(1, "a"), promise(9, "z")}},
		{"then only what was accepted", time.Minute + 1, nil, []existing.Promise{promise(9, "z")}},
		{"a new plan takes the place of the old one", 0, new(promise(1, "b")), []existing.Promise{promise(1, "b"), promise(9, "z")}},
		{"one that buys, too", 0, new(promise(1)), []existing.Promise{promise(9, "z")}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var book existing.Book
			book.Plan(start, owner(1), nil, func([]existing.Promise) existing.Promise { return promise(1, "a") })
			if tc.again != nil {
				book.Plan(start, owner(1), nil, func([]existing.Promise) existing.Promise { return *tc.again })
			}
			book.Plan(start.Add(tc.after), owner(2), []existing.Promise{promise(9, "z")}, func(promised []existing.Promise) existing.Promise {
				if diff := cmp.Diff(tc.want, promised); diff != "" {
					t.Errorf("promised (-want +got):\n%s", diff)
				}
				return existing.Promise{}
			})
		})
	}
}

func TestKeep(t *testing.T) {
	full := node("n", func(n *corev1.Node) {
		n.Annotations = map[string]string{v1beta1.AnnotationGPU: "G", "huge": "x"}
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		n.Spec.Unschedulable = true
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.example/huge:1"}}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{Architecture: "arm64", KernelVersion: "6.1"}
		n.Status.Capacity = corev1.ResourceList{
			"cpu": resource.MustParse("1k"), "nvidia.com/gpu": resource.MustParse("64"), "example.com/nic": resource.MustParse("1"),
		}
		n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("63"), "example.com/nic": resource.MustParse("1")}
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		n.Status.Conditions[0].LastTransitionTime = metav1.Unix(1, 0)
	})
	want := node("n", func(n *corev1.Node) {
		n.Annotations = map[string]string{v1beta1.AnnotationGPU: "G"}
		n.Spec.Unschedulable = true
		n.Status.NodeInfo = corev1.NodeSystemInfo{Architecture: "arm64"}
		n.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("64")}
		n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("63"), "example.com/nic": resource.MustParse("1")}
		n.Status.Conditions[0].LastTransitionTime = metav1.Unix(1, 0)
	})
	got, err := existing.Keep(&full)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(&want), got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	plain := node("plain")
	if _, err := existing.Keep(&plain); err != nil || plain.Annotations != nil {
		t.Errorf("annotations %v (%v), want none", plain.Annotations, err)
	}
	if other, err := existing.Keep("tombstone"); other != "tombstone" || err != nil {
		t.Errorf("another object became %v (%v)", other, err)
	}
}
