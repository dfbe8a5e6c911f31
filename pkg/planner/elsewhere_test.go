// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// TestOtherRegions: advice names a machine sold only in another region, if the planner would choose it there.
func TestOtherRegions(t *testing.T) {
	const region = "Away has no price in eastus; in westus, it costs "
	for _, tc := range []struct {
		reason      string
		away        float64
		gpu         string
		optimizeFor v1beta1.OptimizeFor
		gib         float64
		advised     bool
	}{
		{"as fast and cheaper", 1, "GPU-1", "", 16, true},
		{"as fast and dearer", 2.1, "GPU-1", "", 16, false},
		{"a quarter dearer and much faster", 2.5, "GPU-0", "", 16, true},
		{"more than a quarter dearer", 2.6, "GPU-0", "", 16, false},
		{"dearer for Cost", 2.5, "GPU-0", v1beta1.OptimizeForCost, 16, false},
		{"cheaper for Cost", 1.9, "GPU-0", v1beta1.OptimizeForCost, 16, true},
		{"for Throughput, the hour decides nothing", 1, "GPU-1", v1beta1.OptimizeForThroughput, 16, false},
		{"two machines that save too little", 0.61, "GPU-0", "", 50, false},
		{"two machines that save enough", 0.59, "GPU-0", "", 50, true},
		{"no price anywhere", 0, "GPU-0", "", 16, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			w.GPUs = append(w.GPUs, sku.GPU{
				Name: "GPU-3", Class: "Large", MemoryGiB: 80, BandwidthGBs: 2000, ComputeCapability: "8.0",
				PeakTFLOPs: map[string]float64{"fp16": 300, "bf16": 300}, Link: "nvlink3", LinkGBs: 300,
			})
			home := "GPU-1"
			if tc.gib > 40 {
				home = "GPU-3"
			}
			away := machineOf("Away", tc.gpu, 1, 0)
			away.Prices = nil
			if tc.away > 0 {
				away.Prices = map[string]float64{"westus": tc.away, "farwest": 9}
			}
			w.SKUs = []sku.SKU{machineOf("Home", home, 1, 2), away}
			w.Models[0].Artifacts = []model.Artifact{artifactOf("f16", true, tc.gib)}
			plan, err := ask(t, w, planner.Request{Objectives: planner.Objectives{OptimizeFor: tc.optimizeFor}})
			if err != nil {
				t.Fatal(err)
			}
			advised := slices.ContainsFunc(plan.Advice, func(a string) bool {
				return strings.Contains(a, region) && strings.Contains(a, " instead of this plan's $2.00/h")
			})
			if plan.InstanceType != "Home" || advised != tc.advised {
				t.Errorf("planned %s, advice %q", plan.InstanceType, plan.Advice)
			}
		})
	}
}

// TestRefusalsNameOtherRegions: if a price is unknown in the region, the error names a region with a price.
func TestRefusalsNameOtherRegions(t *testing.T) {
	w := city(t)
	away := machineOf("Away", "GPU-0", 1, 0)
	away.Prices = map[string]float64{"westus": 1.5}
	w.SKUs = []sku.SKU{away}
	for reason, constraints := range map[string]planner.Constraints{
		"nothing else":  {},
		"a price limit": {MaxHourlyPrice: 5},
	} {
		_, err := ask(t, w, planner.Request{Constraints: constraints})
		var infeasible *planner.InfeasibleError
		if !errors.As(err, &infeasible) || !strings.Contains(infeasible.Message, "Away ($1.50/h in westus)") ||
			!strings.Contains(infeasible.Rejected[0].Reason, "($1.50/h in westus)") {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// If a named machine type has no price in the region, a warning names a region with a price.
func TestNamedMachinesWithoutAPriceNameOtherRegions(t *testing.T) {
	w := city(t)
	away := machineOf("Away", "GPU-0", 1, 0)
	away.Prices = map[string]float64{"westus": 1.5, "farwest": 9}
	w.SKUs = []sku.SKU{away}
	plan, err := ask(t, w, planner.Request{Constraints: planner.Constraints{InstanceType: "Away"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "($1.50/h in westus): have the administrator set the region or add prices"
	if !slices.ContainsFunc(plan.Warnings, func(w string) bool {
		return strings.HasPrefix(w, "Away has no known price in ") && strings.HasSuffix(w, want)
	}) {
		t.Errorf("warnings %q, want one with %q", plan.Warnings, want)
	}
}

// The error names the machine types within the user's limits that nobody can buy, with the reasons.
func TestRefusalsNameWhatIsNotSold(t *testing.T) {
	w := city(t)
	away := machineOf("Away", "GPU-0", 1, 2)
	away.Unusable = "its price is not public"
	here := machineOf("Here", "GPU-1", 1, 2)
	w.SKUs = []sku.SKU{away, here}
	_, err := ask(t, w, planner.Request{Constraints: planner.Constraints{InstanceTypes: []string{"Away"}}})
	const want = "NoMachineAllowed: resource.placement allows only machine types that cannot be bought: Away: its price is not public"
	if got := answer(planner.Plan{}, err); got != want {
		t.Errorf("refusal %q, want %q", got, want)
	}
}
