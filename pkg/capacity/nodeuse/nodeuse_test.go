// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeuse_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/pkg/capacity/nodeuse"
)

// podOn returns a pod of ordinary size on a node.
func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web", "pod-template-hash": "abc"},
			Annotations: map[string]string{"example.dev/config": fmt.Sprintf("%0200d", 1)},
		},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/web:1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), "nvidia.com/gpu": resource.MustParse("1"),
				}},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// server serves lists of pods in pages, and a watch with a test's events.
type server struct {
	client.WithWatch

	pods    []*corev1.Pod
	events  *watch.RaceFreeFakeWatcher
	lists   atomic.Int32
	refuses atomic.Bool
}

func newServer(pods ...*corev1.Pod) *server {
	s := &server{pods: pods, events: watch.NewRaceFreeFake()}
	s.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), interceptor.Funcs{List: s.list, Watch: s.watch})
	return s
}

func (s *server) list(_ context.Context, _ client.WithWatch, into client.ObjectList, asked ...client.ListOption) error {
	s.lists.Add(1)
	if s.refuses.Load() {
		return errors.New("the API server is away")
	}
	options := (&client.ListOptions{}).ApplyOptions(asked)
	list, ok := into.(*corev1.PodList)
	if want := "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"; !ok || options.FieldSelector.String() != want {
		return fmt.Errorf("asked for %T by %q", into, options.FieldSelector)
	}
	from := 0
	if options.Continue != "" {
		if _, err := fmt.Sscan(options.Continue, &from); err != nil {
			return err
		}
	}
	to := min(from+int(options.Limit), len(s.pods))
	for _, pod := range s.pods[from:to] {
		list.Items = append(list.Items, *pod.DeepCopy())
	}
	if list.ResourceVersion = "7"; to < len(s.pods) {
		list.Continue = fmt.Sprint(to)
	}
	return nil
}

func (s *server) watch(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return s.events, nil
}

// nodesOf returns the sorted nodes of the known pods, once the pods are known.
func nodesOf(pods *nodeuse.Pods, nodes ...string) []string {
	uses, isKnown := pods.Of(nodes)
	if !isKnown {
		return []string{"unknown"}
	}
	out := []string{}
	for i := range uses {
		out = append(out, uses[i].Node)
	}
	slices.Sort(out)
	return out
}

func eventually(t *testing.T, pods *nodeuse.Pods, want []string, nodes ...string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for diff := "-"; diff != ""; {
		select {
		case <-deadline:
			t.Fatalf("(-want +got):\n%s", diff)
		case <-time.After(5 * time.Millisecond):
		}
		diff = cmp.Diff(want, nodesOf(pods, nodes...))
	}
}

func start(t *testing.T, s *server) *nodeuse.Pods {
	t.Helper()
	pods := nodeuse.New(s)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- pods.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return pods
}

func TestPodsAreKnownByNode(t *testing.T) {
	s := newServer()
	for i := range 1201 { // more than two pages
		s.pods = append(s.pods, podOn(fmt.Sprint("node-", i%400), fmt.Sprint("pod-", i)))
	}
	pods := start(t, s)
	if got := s.lists.Load(); got != 0 {
		t.Errorf("%d lists before anybody asks, want none", got)
	}
	eventually(t, pods, []string{"node-0", "node-0", "node-0", "node-0", "node-7", "node-7", "node-7"}, "node-0", "node-7", "node-999")
	s.events.Delete(podOn("node-7", "pod-7"))
	s.events.Add(podOn("node-999", "new"))
	eventually(t, pods, []string{"node-7", "node-7", "node-999"}, "node-7", "node-999")
	ended := podOn("node-999", "new")
	ended.Status.Phase = corev1.PodSucceeded
	s.events.Modify(ended)
	eventually(t, pods, []string{"node-7", "node-7"}, "node-7", "node-999")
	if got := s.lists.Load(); got != 3 {
		t.Errorf("%d lists, want one for each of 3 pages", got)
	}
}

// TestUnansweredListIsNotAnEmptyOne: before the first list is complete, the use of nodes is unknown, not zero.
func TestUnansweredListIsNotAnEmptyOne(t *testing.T) {
	s := newServer(podOn("a", "pod"))
	s.refuses.Store(true)
	pods := start(t, s)
	eventually(t, pods, []string{"unknown"}, "a")
	for s.lists.Load() == 0 {
		runtime.Gosched()
	}
	eventually(t, pods, []string{"unknown"}, "a")
	s.refuses.Store(false)
	eventually(t, pods, []string{"a"}, "a")
}

// TestPodTakesFewBytes bounds the memory for each pod of the cluster.
func TestPodTakesFewBytes(t *testing.T) {
	const count, most = 10_000, 512
	s := newServer()
	for i := range count {
		s.pods = append(s.pods, podOn(fmt.Sprintf("ip-10-0-%d-%d.compute.internal", i%2000/250, i%250), fmt.Sprintf("%08d-1111-2222-3333-444444444444", i)))
	}
	before := heap()
	pods := start(t, s)
	eventually(t, pods, []string{}, "none")
	got := (int64(heap()) - int64(before)) / count
	t.Logf("figure: the leader's memory for each of %d pods is %d bytes (at most %d)", count, got, most)
	if got > most {
		t.Errorf("%d bytes for each pod, want at most %d", got, most)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(pods)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
