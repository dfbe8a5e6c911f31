// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// TestShorterSequences: if the user sets no length, sequences get shorter before a plan takes a dearer class of GPU.
func TestShorterSequences(t *testing.T) {
	small, large := machineOf("Small", "G-12-PCIe", 1, 0.5), machineOf("Large", "G-40", 1, 2)
	atPrice := func(m sku.SKU, price float64) sku.SKU {
		m.Prices = map[string]float64{"eastus": price}
		return m
	}
	const advice = "Large ($2.00/h) holds sequences of 8192 tokens: set inference.objectives.maxModelLen: 8192 to get it"
	for _, tc := range []struct {
		reason     string
		weights    float64 // in GiB; Small has 12 GiB, 1 of it reserved, and 1024 tokens take 60 MiB
		machines   []sku.SKU
		objectives planner.Objectives
		want       string
		advised    bool
	}{
		{"the usual length fits", 10.4, []sku.SKU{small, large}, planner.Objectives{}, "1 × Small: 10496 tokens × 1", false},
		{"a shorter one does", 10.7, []sku.SKU{small, large}, planner.Objectives{}, "1 × Small: 5120 tokens × 1", true},
		{
			"it is shortened for several sequences that are asked for, too", 10.4,
			[]sku.SKU{small, large},
			planner.Objectives{Concurrency: 4},
			"1 × Small: 2560 tokens × 4", true,
		},
		{
			"one that is set is not", 10.7,
			[]sku.SKU{small, large},
			planner.Objectives{MaxModelLen: 8192},
			"1 × Large: 8192 tokens × 4", false,
		},
		{"not below the catalogue's least", 10.95, []sku.SKU{small, large}, planner.Objectives{}, "1 × Large: 32768 tokens × 4", false},
		{
			"nor below the typical request", 10.7,
			[]sku.SKU{small, large},
			planner.Objectives{InputTokens: 5000, OutputTokens: 300},
			"1 × Large: 32768 tokens × 4", false,
		},
		{"a quarter more buys the usual length", 10.7, []sku.SKU{small, atPrice(large, 0.625)}, planner.Objectives{}, "1 × Large: 32768 tokens × 4", false},
		{
			"for Cost, nothing buys it", 10.7,
			[]sku.SKU{atPrice(small, 1.98), large},
			planner.Objectives{OptimizeFor: v1beta1.OptimizeForCost},
			"1 × Small: 5120 tokens × 1", true,
		},
		{
			"for Latency, what holds less never comes first", 10.7,
			[]sku.SKU{small, large},
			planner.Objectives{OptimizeFor: v1beta1.OptimizeForLatency},
			"1 × Large: 32768 tokens × 4", false,
		},
		{
			"a second GPU of the same class in one machine is no other class", 10.7,
			[]sku.SKU{small, machineOf("Twin", "G-12-PCIe", 2, 2)},
			planner.Objectives{},
			"1 × Twin: 32768 tokens × 4", false,
		},
		{"a dearer machine does not hold less", 10.7, []sku.SKU{atPrice(small, 3), large}, planner.Objectives{}, "1 × Large: 32768 tokens × 4", false},
		{"nothing else holds it", 10.7, []sku.SKU{small}, planner.Objectives{OptimizeFor: v1beta1.OptimizeForLatency}, "1 × Small: 5120 tokens × 1", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w, m := town(), chat()
			m.Artifacts = []model.Artifact{artifactOf("f16", true, tc.weights)}
			w.Models, w.SKUs = []model.Model{m}, tc.machines
			plan, err := planner.New(w.load(t), planner.Settings{}).Plan(planner.Request{Model: &m, Objectives: tc.objectives})
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%d × %s: %d tokens × %d", plan.Nodes, plan.InstanceType, plan.MaxModelLen, plan.Concurrency)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if advised := slices.Contains(plan.Advice, advice); advised != tc.advised {
				t.Errorf("advice %q", plan.Advice)
			}
			warned := slices.ContainsFunc(plan.Warnings, func(w string) bool { return strings.Contains(w, "instead of the usual 8192 tokens") })
			if short := plan.MaxModelLen < 8192 || plan.Concurrency < max(4, tc.objectives.Concurrency); warned != short {
				t.Errorf("warnings %q", plan.Warnings)
			}
		})
	}
}

// TestShorterThanASecondMachine: shorter sequences save a second machine that would save a dearer class of GPU.
func TestShorterThanASecondMachine(t *testing.T) {
	const advice = "2 × Pair ($6.00/h) holds sequences of 8192 tokens: set inference.objectives.maxModelLen: 8192 to get it"
	for _, tc := range []struct {
		reason     string
		gib        float64
		objectives planner.Objectives
		want       string
		advised    bool
	}{
		{"one machine holds a sequence of the usual length", 36.5, planner.Objectives{}, "1 × Pair: 9728 tokens × 1", false},
		{"one holds a shorter one", 36.75, planner.Objectives{}, "1 × Pair: 5376 tokens × 1", true},
		{"the length is set", 36.75, planner.Objectives{MaxModelLen: 8192}, "2 × Pair: 8192 tokens × 71", false},
		{"one does not even hold the least", 37, planner.Objectives{}, "2 × Pair: 32768 tokens × 17", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			w.SKUs = []sku.SKU{machineOf("Pair", "GPU-0", 1, 3)}
			w.Models[0].Artifacts = []model.Artifact{artifactOf("f16", true, tc.gib)}
			plan, err := ask(t, w, planner.Request{Objectives: tc.objectives})
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%d × %s: %d tokens × %d", plan.Nodes, plan.InstanceType, plan.MaxModelLen, plan.Concurrency)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if advised := slices.Contains(plan.Advice, advice); advised != tc.advised {
				t.Errorf("advice %q", plan.Advice)
			}
		})
	}
}

// TestShorterOnExistingNodes: an existing node costs nothing, so it comes before buying a machine of the same size.
func TestShorterOnExistingNodes(t *testing.T) {
	w, m := town(), chat()
	m.Artifacts = []model.Artifact{artifactOf("f16", true, 10.7)}
	w.Models, w.SKUs = []model.Model{m}, []sku.SKU{machineOf("Small", "G-12-PCIe", 1, 0.5), machineOf("Large", "G-40", 1, 2)}
	for price, want := range map[float64]string{
		2:   "existing node n (1 × G-12): 5120 tokens × 1",
		0.6: "1 × Large (1 × G-40): 32768 tokens × 4",
	} {
		w.SKUs[1].Prices = map[string]float64{"eastus": price}
		plan, err := planner.New(w.load(t), planner.Settings{}).Plan(planner.Request{
			Model: &m, Nodes: []planner.Node{nodeOf("n", "G-12-PCIe", 1, 1)}, NodeSource: v1beta1.NodeSourceAny,
		})
		if got := fmt.Sprintf("%s: %d tokens × %d", plan.Summary(), plan.MaxModelLen, plan.Concurrency); err != nil || got != want {
			t.Errorf("Large at %g: %s (%v), want %s", price, got, err, want)
		}
	}
}
