// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/presets"
)

// cachedNodes answers lists of nodes as a cache does that copies nothing, and has no other objects.
type cachedNodes struct {
	client.Client

	nodes []corev1.Node
}

func (c cachedNodes) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if list, ok := into.(*corev1.NodeList); ok {
		list.Items = c.nodes
	}
	return nil
}

// usedBy are what pods request of nodes, as a map.
type usedBy map[string][]existing.Use

func (u usedBy) Of(nodes []string) ([]existing.Use, bool) {
	var out []existing.Use
	for _, node := range nodes {
		out = append(out, u[node]...)
	}
	return out, u != nil
}

// gpuNodes are nodes with 8 GPUs each, all of which two pods of the node request but where some are free.
func gpuNodes(tb testing.TB, count, free int) ([]corev1.Node, usedBy) {
	tb.Helper()
	uses := usedBy{}
	nodes := make([]corev1.Node, 0, count)
	for i := range count {
		node := corev1.Node{}
		node.Name = fmt.Sprintf("gpu-%05d", i)
		node.Labels = map[string]string{
			corev1.LabelInstanceTypeStable: "Standard_ND96isr_H100_v5", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
			"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559", corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3),
		}
		node.Status.Allocatable = corev1.ResourceList{
			gpuResourceName: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("96"),
			corev1.ResourceMemory: resource.MustParse("1900Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("2Ti"),
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		nodes = append(nodes, node)
		if i < count-free {
			uses[node.Name] = []existing.Use{useOf(tb, node.Name, "4"), useOf(tb, node.Name, "4")}
		}
	}
	return nodes, uses
}

const gpuResourceName corev1.ResourceName = "nvidia.com/gpu"

func useOf(tb testing.TB, node, gpus string) existing.Use {
	tb.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "others"}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{gpuResourceName: resource.MustParse(gpus)}},
	}}}}
	use, holds := existing.UseOf(pod)
	if !holds {
		tb.Fatal("the pod holds nothing")
	}
	return use
}

// onNodes is a Reconciler with nodes, and a Workspace that may use nodes only. Whatever it asked of the API server would
// be a nil dereference.
func onNodes(tb testing.TB, nodes []corev1.Node, uses Uses) (*Reconciler, func() (planner.Plan, error)) {
	tb.Helper()
	known, err := catalog.Load(presets.FS())
	if err != nil {
		tb.Fatal(err)
	}
	m, err := known.ResolveModel("qwen2.5-coder-32b-instruct")
	if err != nil {
		tb.Fatal(err)
	}
	r := New(Config{
		Client: cachedNodes{nodes: nodes}, Catalog: known, Planner: planner.New(known, planner.Settings{}), Uses: uses,
		Clock: testclock.NewFakePassiveClock(now.Time),
	})
	ws := workspaceObject()
	ws.Resource = v1beta1.ResourceSpec{Placement: &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceExisting}}
	return r, func() (planner.Plan, error) {
		return r.decide(tb.Context(), newScope(ws), planner.Request{Model: &m, NodeSource: v1beta1.NodeSourceExisting})
	}
}

// TestPlanOnNodesAsksTheAPIServerNothing has no live client to ask: one request for each node would never end.
func TestPlanOnNodesAsksTheAPIServerNothing(t *testing.T) {
	for _, test := range []struct {
		reason string
		free   int
		fails  bool
	}{
		{"a node is free", 1, false},
		{"it waits for room", 0, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			nodes, uses := gpuNodes(t, 20, test.free)
			_, decide := onNodes(t, nodes, uses)
			if _, err := decide(); (err != nil) != test.fails {
				t.Errorf("error %v, want one: %v", err, test.fails)
			}
		})
	}
}

// TestPlanWaitsForPods does not take nodes for free whose pods are not known yet.
func TestPlanWaitsForPods(t *testing.T) {
	nodes, _ := gpuNodes(t, 1, 1)
	_, decide := onNodes(t, nodes, usedBy(nil))
	if plan, err := decide(); !isWaiting(err) {
		t.Errorf("plan on %v, error %v; want to wait", plan.NodeNames, err)
	}
}

// BenchmarkPlanOnNodes plans for a Workspace that brings its own nodes, 5,000 of them: one that is free, or none.
func BenchmarkPlanOnNodes(b *testing.B) {
	for _, bench := range []struct {
		name string
		free int
	}{{"one free", 1}, {"none free", 0}, {"all free", 5000}} {
		b.Run(bench.name, func(b *testing.B) {
			nodes, uses := gpuNodes(b, 5000, bench.free)
			r, decide := onNodes(b, nodes, uses)
			began, count := time.Now(), 0
			for b.Loop() {
				r.book = existing.Book{}
				if _, err := decide(); (err != nil) != (bench.free == 0) {
					b.Fatal(err)
				}
				count++
			}
			if took := time.Since(began) / time.Duration(count); took > time.Second {
				b.Errorf("a plan took %s, want at most a second", took)
			}
		})
	}
}
