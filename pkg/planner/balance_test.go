// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Balanced may choose a dearer hour than the cheapest, if it pays off.
func TestBalance(t *testing.T) {
	pair := func(name string, price, network float64) sku.SKU {
		s := machineOf(name, "GPU-0", 1, price)
		s.NetworkGBs = network
		return s
	}
	share := func(name string, bandwidth float64) sku.GPU {
		return sku.GPU{
			Name: name, Class: name, MemoryGiB: 40, BandwidthGBs: bandwidth, ComputeCapability: "8.0",
			PeakTFLOPs: map[string]float64{"fp16": 300, "bf16": 300}, Link: "nvlink3", LinkGBs: 300,
		}
	}
	large := sku.GPU{
		Name: "GPU-3", Class: "Large", MemoryGiB: 80, BandwidthGBs: 2000, ComputeCapability: "8.0",
		PeakTFLOPs: map[string]float64{"fp16": 300, "bf16": 300},
	}
	for _, tc := range []struct {
		reason      string
		gib         float64
		machines    []sku.SKU
		optimizeFor v1beta1.OptimizeFor
		want        string
	}{
		{
			"a quarter more buys a GPU that is many times as fast", 16,
			[]sku.SKU{machineOf("Dull", "GPU-1", 1, 2), machineOf("Swift", "GPU-0", 1, 2.5)},
			"", "1 × Swift: $0.50/h more than Dull ($2.00/h) for 4.5 × the tokens per dollar",
		},
		{
			"more than a quarter does not, however fast it is", 16,
			[]sku.SKU{machineOf("Dull", "GPU-1", 1, 2), machineOf("Swift", "GPU-0", 1, 2.52)},
			"", "1 × Dull: ",
		},
		{
			"for Cost nothing does", 16,
			[]sku.SKU{machineOf("Dull", "GPU-1", 1, 2), machineOf("Swift", "GPU-0", 1, 2.01)},
			v1beta1.OptimizeForCost, "1 × Dull: ",
		},
		{
			"a surcharge that takes less than a tenth off a token is not paid", 16,
			[]sku.SKU{machineOf("Fair", "GPU-95", 1, 2), machineOf("Swift", "GPU-0", 1, 2.1)},
			"", "1 × Fair: ",
		},
		{
			"one that takes more off is", 16,
			[]sku.SKU{machineOf("Fair", "GPU-80", 1, 2), machineOf("Swift", "GPU-0", 1, 2.1)},
			"", "1 × Swift: $0.10/h more than Fair ($2.00/h) for 1.2 × the tokens per dollar",
		},
		{
			"each surcharge is weighed against the best cheaper option, not against the cheapest", 16,
			[]sku.SKU{machineOf("Dull", "GPU-1", 1, 2), machineOf("Fair", "GPU-95", 1, 2.1), machineOf("Swift", "GPU-0", 1, 2.2)},
			"", "1 × Fair: $0.10/h more than Dull ($2.00/h) for 5.1 × the tokens per dollar",
		},
		{
			"of two that are as fast the cheaper one is taken", 16,
			[]sku.SKU{machineOf("Dull", "GPU-1", 1, 2), machineOf("Duller", "GPU-1", 1, 2.1)},
			"", "1 × Dull: ",
		},
		{
			"less than a cent is no difference: the name decides", 16,
			[]sku.SKU{machineOf("B", "GPU-1", 1, 2), machineOf("A", "GPU-1", 1, 2.009)},
			v1beta1.OptimizeForCost, "1 × A: ",
		},
		{
			"a whole cent decides", 16,
			[]sku.SKU{machineOf("B", "GPU-1", 1, 2), machineOf("A", "GPU-1", 1, 2.01)},
			v1beta1.OptimizeForCost, "1 × B: ",
		},
		{
			"of prices within a cent, fewer GPUs decide", 16,
			[]sku.SKU{machineOf("A", "GPU-1", 2, 2), machineOf("B", "GPU-1", 1, 2.005)},
			v1beta1.OptimizeForCost, "1 × B: ",
		},
		{
			"two machines over the ordinary network that save 39 % are not worth it", 50,
			[]sku.SKU{pair("Pair", 3.05, 0), machineOf("Large", "GPU-3", 1, 10)},
			"", "1 × Large: ",
		},
		{
			"they are where they save 40 %", 50,
			[]sku.SKU{pair("Pair", 3, 0), machineOf("Large", "GPU-3", 1, 10)},
			"", "2 × Pair: ",
		},
		{
			"with RDMA a quarter is enough", 50,
			[]sku.SKU{pair("Pair", 3.75, 50), machineOf("Large", "GPU-3", 1, 10)},
			"", "2 × Pair: ",
		},
		{
			"less is not", 50,
			[]sku.SKU{pair("Pair", 3.8, 50), machineOf("Large", "GPU-3", 1, 10)},
			"", "1 × Large: ",
		},
		{
			"for Cost they are taken for any saving", 50,
			[]sku.SKU{pair("Pair", 4.9, 0), machineOf("Large", "GPU-3", 1, 10)},
			v1beta1.OptimizeForCost, "2 × Pair: ",
		},
		{
			"nothing else holds the model", 50,
			[]sku.SKU{pair("Pair", 4.9, 0)},
			"", "2 × Pair: ",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			w.GPUs = append(w.GPUs, large, share("GPU-95", 1900), share("GPU-80", 1600))
			w.SKUs = tc.machines
			w.Models[0].Artifacts = []model.Artifact{artifactOf("f16", true, tc.gib)}
			plan, err := ask(t, w, planner.Request{Objectives: planner.Objectives{OptimizeFor: tc.optimizeFor}})
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%d × %s: %s", plan.Nodes, plan.InstanceType, plan.Premium)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// The administrator changes the limits of Balanced with an overlay of the catalogue.
func TestBalanceIsTheAdministrators(t *testing.T) {
	w := city(t)
	w.SKUs = []sku.SKU{machineOf("Dull", "GPU-1", 1, 2), machineOf("Swift", "GPU-0", 1, 2.9)}
	for premium, want := range map[float64]string{0: "Dull", 0.44: "Dull", 0.45: "Swift"} {
		w.Objectives = []catalog.Objective{{Name: v1beta1.OptimizeForBalanced, Premium: premium}}
		plan, err := ask(t, w, planner.Request{})
		if err != nil || plan.InstanceType != want {
			t.Errorf("with a premium of %g: %q (%v), want %s", premium, plan.InstanceType, err, want)
		}
	}
}
