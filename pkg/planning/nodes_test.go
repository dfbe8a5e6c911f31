// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/presets"
)

// usedBy maps nodes to the requests of their pods.
type usedBy map[string][]existing.Use

func (u usedBy) Of(nodes []string) ([]existing.Use, bool) {
	var out []existing.Use
	for _, node := range nodes {
		out = append(out, u[node]...)
	}
	return out, u != nil
}

// gpuNodes returns nodes with 8 GPUs each. Two pods request all GPUs of a node, except on the free nodes.
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

// onNodes returns Nodes, and a function that plans for a Workspace that allows only existing nodes.
func onNodes(tb testing.TB, nodes []corev1.Node, uses Uses) (*Nodes, func() (planner.Plan, error)) {
	tb.Helper()
	known, err := catalog.Load(presets.FS())
	if err != nil {
		tb.Fatal(err)
	}
	m, err := known.ResolveModel("qwen2.5-coder-32b-instruct")
	if err != nil {
		tb.Fatal(err)
	}
	out := &Nodes{
		List: func(context.Context) ([]corev1.Node, error) { return nodes, nil }, Uses: uses,
		Clock: testclock.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
	}
	pipeline := &Pipeline{Builder: NewBuilder(planner.New(known, planner.Settings{}), known, Settings{}), Nodes: out}
	ws := workspace()
	ws.Resource = v1beta1.ResourceSpec{Placement: &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceExisting}}
	return out, func() (planner.Plan, error) {
		return pipeline.plan(tb.Context(), Ask{Workspace: ws}, planner.Request{Model: &m, NodeSource: v1beta1.NodeSourceExisting})
	}
}

// TestPlanOnNodes plans without a client, because a request for each node would take too long.
func TestPlanOnNodes(t *testing.T) {
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

// TestPlanWaitsForPods: nodes do not count as free before their pods are known.
func TestPlanWaitsForPods(t *testing.T) {
	nodes, _ := gpuNodes(t, 1, 1)
	_, decide := onNodes(t, nodes, usedBy(nil))
	plan, err := decide()
	if _, isWaiting := errors.AsType[*progress.WaitingError](err); !isWaiting {
		t.Errorf("plan on %v, error %v; want to wait", plan.NodeNames, err)
	}
}

// BenchmarkPlanOnNodes plans on 5,000 existing nodes, of which one, none or all are free.
func BenchmarkPlanOnNodes(b *testing.B) {
	for _, bench := range []struct {
		name string
		free int
	}{{"one free", 1}, {"none free", 0}, {"all free", 5000}} {
		b.Run(bench.name, func(b *testing.B) {
			nodes, uses := gpuNodes(b, 5000, bench.free)
			there, decide := onNodes(b, nodes, uses)
			began, count := time.Now(), 0
			for b.Loop() {
				there.book = existing.Book{}
				if _, err := decide(); (err != nil) != (bench.free == 0) {
					b.Fatal(err)
				}
				count++
			}
			took := time.Since(began) / time.Duration(count)
			b.Logf("figure: planning onto 5,000 nodes, %s, takes %.2f s (at most 1)", bench.name, took.Seconds())
			if took > time.Second {
				b.Errorf("a plan took %s, want at most a second", took)
			}
		})
	}
}
