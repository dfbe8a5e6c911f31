// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// sliceNode returns a node with four MIG slices of H100s, some of them free.
func sliceNode(t *testing.T, profile string, free int) planner.Node {
	t.Helper()
	gpu, ok := realCatalog(t).GPU("H100-80-SXM-" + profile)
	if !ok {
		t.Fatalf("there is no slice %s", profile)
	}
	return planner.Node{
		Name: "sliced", FreeGPUs: free, FreeVCPUs: 64, FreeMemoryGiB: 512, FreeDiskGiB: 500,
		Machine: sku.Machine{GPU: gpu, SKU: sku.SKU{
			Name: "metal", GPU: gpu.Name, GPUs: 4, Resource: "nvidia.com/mig-" + profile, VCPUs: 64, MemoryGiB: 512,
		}},
	}
}

// A model takes one slice that holds it. It never spreads over several slices.
func TestModelsOnSlices(t *testing.T) {
	p := planner.New(realCatalog(t), planner.Settings{})
	for _, tc := range []struct {
		reason, model, profile, want string
		free                         int
	}{
		{reason: "16 GB fit 39.5 GiB", model: "llama-3.1-8b-instruct", profile: "3g.40gb", free: 4},
		{reason: "one free slice is enough", model: "llama-3.1-8b-instruct", profile: "3g.40gb", free: 1},
		{
			reason: "two slices do not hold what one does not", model: "llama-3.1-8b-instruct", profile: "1g.10gb", free: 4,
			want: "and a model cannot spread over slices of a GPU",
		},
		{reason: "none is free", model: "llama-3.1-8b-instruct", profile: "3g.40gb", want: "no GPU is free"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m, err := realCatalog(t).ResolveModel(tc.model)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := p.Plan(planner.Request{
				Model: &m, NodeSource: v1beta1.NodeSourceExisting, Nodes: []planner.Node{sliceNode(t, tc.profile, tc.free)},
			})
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if plan.GPUsPerNode != 1 || plan.TensorParallel != 1 || plan.GPUResource != "nvidia.com/mig-3g.40gb" || plan.Accelerator != "H100-80-3g.40gb" {
				t.Errorf("plan %s: %d × %s (%s), TP %d", plan.Summary(), plan.GPUsPerNode, plan.GPUResource, plan.Accelerator, plan.TensorParallel)
			}
			if plan.Performance == nil || plan.Performance.TPOTMillis < 10 || plan.Performance.TPOTMillis > 25 {
				t.Errorf("performance %+v, want half the bandwidth of an H100: 10 to 25 ms per token", plan.Performance)
			}
		})
	}
}

// If the user allows H100, a plan takes no slice of an H100, only the whole GPU. A slice has its own name.
func TestSlicesAreNoAccelerators(t *testing.T) {
	p := planner.New(realCatalog(t), planner.Settings{})
	m, err := realCatalog(t).ResolveModel("llama-3.1-8b-instruct")
	if err != nil {
		t.Fatal(err)
	}
	for allowed, want := range map[string]bool{"H100": false, "H100-80": false, "H100-80-3g.40gb": true} {
		_, err := p.Plan(planner.Request{
			Model: &m, NodeSource: v1beta1.NodeSourceExisting, Nodes: []planner.Node{sliceNode(t, "3g.40gb", 1)},
			Constraints: planner.Constraints{Accelerators: []string{allowed}},
		})
		if (err == nil) != want {
			t.Errorf("accelerators: [%s]: error %v, want a plan %t", allowed, err, want)
		}
	}
}

// On a node with slices of several sizes, a model takes the smallest that holds it; resource.partition selects another.
func TestNodesWithSlicesOfSeveralSizes(t *testing.T) {
	p := planner.New(realCatalog(t), planner.Settings{})
	m, err := realCatalog(t).ResolveModel("llama-3.1-8b-instruct")
	if err != nil {
		t.Fatal(err)
	}
	sized := func(profile string, free int) planner.Node {
		n := sliceNode(t, profile, free)
		n.Part = "slices of " + profile
		return n
	}
	for _, tc := range []struct {
		reason, slice, want, refused string
		nodes                        []planner.Node
	}{
		{reason: "the smallest that holds it", want: "nvidia.com/mig-3g.40gb", nodes: []planner.Node{sized("7g.80gb", 1), sized("1g.10gb", 2), sized("3g.40gb", 1)}},
		{reason: "the next one if all are taken", want: "nvidia.com/mig-7g.80gb", nodes: []planner.Node{sized("7g.80gb", 1), sized("1g.10gb", 2), sized("3g.40gb", 0)}},
		{reason: "the one that is asked for", slice: "7G.80GB", want: "nvidia.com/mig-7g.80gb", nodes: []planner.Node{sized("7g.80gb", 1), sized("3g.40gb", 1)}},
		{
			reason: "one node, and each size with its reason", nodes: []planner.Node{sized("1g.10gb", 2), sized("3g.40gb", 0)},
			refused: "the only existing node is not suitable; sliced: slices of 1g.10gb: does not fit",
		},
		{
			reason: "none of the size that is asked for", slice: "2g.20gb", nodes: []planner.Node{sized("1g.10gb", 2), sized("3g.40gb", 1)},
			refused: "the only existing node cannot be used; sliced: slices of 1g.10gb: has no MIG slices of 2g.20gb",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan, err := p.Plan(planner.Request{
				Model: &m, NodeSource: v1beta1.NodeSourceExisting, Nodes: tc.nodes, Constraints: planner.Constraints{Slice: tc.slice},
			})
			switch {
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("error %v, want %q", err, tc.refused)
			case tc.refused == "" && err != nil:
				t.Fatal(err)
			case tc.refused == "" && plan.GPUResource != tc.want:
				t.Errorf("resource %s, want %s", plan.GPUResource, tc.want)
			}
		})
	}
}
