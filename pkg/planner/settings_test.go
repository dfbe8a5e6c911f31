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

// The planned context holds a typical request.
func TestContextHoldsRequest(t *testing.T) {
	const short = "inference.objectives.inputTokens and inference.objectives.outputTokens make a request of %d tokens, but a sequence has at most %d: " +
		"the predicted speeds are for shorter requests"
	for _, tc := range []struct {
		reason     string
		objectives planner.Objectives
		want       decision
	}{
		{
			"8192 tokens hold it, and the GPUs that hold them hold more",
			planner.Objectives{InputTokens: 8000, OutputTokens: 192},
			decision{Summary: "1 × Four (2 of 4 × G-12)", Length: 19968},
		},
		{
			"24000 tokens take one more GPU",
			planner.Objectives{InputTokens: 20000, OutputTokens: 4000},
			decision{Summary: "1 × Four (3 of 4 × G-12)", Length: 32768},
		},
		{
			"the usual answer counts where none is set",
			planner.Objectives{InputTokens: 20000},
			decision{Summary: "1 × Four (3 of 4 × G-12)", Length: 32768},
		},
		{
			"the model's context ends it",
			planner.Objectives{InputTokens: 40000},
			decision{Summary: "1 × Four (3 of 4 × G-12)", Length: 32768, Warnings: []string{fmt.Sprintf(short, 40000, 32768)}},
		},
		{
			"a context that the user sets is kept",
			planner.Objectives{InputTokens: 2000, OutputTokens: 100, MaxModelLen: 1000},
			decision{Summary: "1 × Four (2 of 4 × G-12)", Length: 1000, Warnings: []string{fmt.Sprintf(short, 2100, 1000)}},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan, err := inTown(t).Plan(planner.Request{
				Model: modelOf("chat"), Objectives: tc.objectives, Constraints: planner.Constraints{Accelerators: []string{"G-12"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			got := decision{Summary: plan.Summary(), Length: plan.MaxModelLen, Warnings: plan.Warnings}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// A plan takes a machine without a price only by name. It takes a spot machine above the on-demand price only if
// nothing else is allowed.
func TestPrices(t *testing.T) {
	const spot, onDemand, reserved = v1beta1.CapacitySpot, v1beta1.CapacityOnDemand, v1beta1.CapacityReserved
	const nowherePriced = "NoMachineAllowed: no suitable machine type has a known price in eastus: name one in resource.instanceType, " +
		"such as Only, or have the administrator set the region or add prices"
	priced := func(price, spotPrice float64) sku.SKU {
		s := machineOf("Only", "G-40", 1, price)
		if s.Spot = spotPrice > 0; s.Spot {
			s.SpotPrices = map[string]float64{"eastus": spotPrice}
		}
		return s
	}
	unpriced := priced(0, 0)
	unpriced.Prices = nil
	held := priced(2, 1)
	held.Reserved = true
	refused := func(types ...v1beta1.CapacityType) []planner.Exclusion {
		var out []planner.Exclusion
		for _, t := range types {
			out = append(out, planner.Exclusion{InstanceType: "Only", CapacityType: t, Reason: "no capacity until 12:00"})
		}
		return out
	}
	type types = []v1beta1.CapacityType
	const allRefused = "NoMachineAllowed: no machine type is left: no capacity until 12:00"
	for _, tc := range []struct {
		reason      string
		machine     sku.SKU
		constraints planner.Constraints
		want        string
	}{
		{"an unpriced machine is not chosen", unpriced, planner.Constraints{}, nowherePriced},
		{"not by its GPU either", unpriced, planner.Constraints{Accelerators: []string{"G-40"}}, nowherePriced},
		{"it is where it is named", unpriced, planner.Constraints{InstanceType: "Only"}, "on-demand at -1"},
		{"it is where it is named in a list", unpriced, planner.Constraints{InstanceTypes: []string{"oNLY"}}, "on-demand at -1"},
		{"spot that is cheaper", priced(2, 1), planner.Constraints{CapacityTypes: types{onDemand, spot}}, "spot at 1"},
		{"spot that costs the same", priced(2, 2), planner.Constraints{CapacityTypes: types{onDemand, spot}}, "spot at 2"},
		{"spot that is dearer is not taken", priced(2, 3), planner.Constraints{CapacityTypes: types{onDemand, spot}}, "on-demand at 2"},
		{"spot that is dearer, where nothing else is allowed", priced(2, 3), planner.Constraints{CapacityTypes: types{spot}}, "spot at 3"},
		{
			"spot that is dearer, where on demand was just refused", priced(2, 3),
			planner.Constraints{CapacityTypes: types{onDemand, spot}, Excluded: refused(onDemand)},
			"spot at 3",
		},
		{"a reservation costs nothing more", held, planner.Constraints{CapacityTypes: types{spot, reserved}}, "reserved at 0"},
		{"a reservation that is used up", held, planner.Constraints{Excluded: refused(reserved)}, "on-demand at 2"},
		{
			"a reservation that nobody knows of does not stand in for what was refused on demand", priced(2, 0),
			planner.Constraints{Excluded: refused(onDemand)},
			allRefused,
		},
		{
			"nor where the user lists both", priced(2, 0),
			planner.Constraints{CapacityTypes: types{onDemand, reserved}, Excluded: refused(onDemand)},
			allRefused,
		},
		{"it is tried where the user wants nothing else", priced(2, 0), planner.Constraints{CapacityTypes: types{reserved}}, "reserved at 2"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := town()
			w.SKUs = []sku.SKU{tc.machine}
			plan, err := ask(t, w, planner.Request{Constraints: tc.constraints})
			got := fmt.Sprintf("%s at %g", plan.CapacityType, plan.HourlyPrice)
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// Engine settings of the user are kept if machines allow it. Otherwise the nearest possible ones replace them.
func TestEngineSettings(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		settings planner.EngineSettings
		only     string
		want     string
		warning  string
	}{
		{
			"two stages on machines with one GPU take two machines",
			planner.EngineSettings{PipelineParallel: 2},
			"Swift",
			"2 × Swift (1 × Swift), TP 1 PP 2 DP 1", "",
		},
		{
			"three stages are no power of two",
			planner.EngineSettings{PipelineParallel: 3},
			"Swifts",
			"1 × Swifts (3 of 4 × Swift), TP 1 PP 3 DP 1", "",
		},
		{
			"nor are three replicas",
			planner.EngineSettings{DataParallel: 3},
			"Swifts",
			"1 × Swifts (3 of 4 × Swift), TP 1 PP 1 DP 3", "",
		},
		{
			"eight heads are not cut in three: two is as near as four, and takes fewer GPUs",
			planner.EngineSettings{TensorParallel: 3},
			"Swifts",
			"1 × Swifts (4 × Swift), TP 2 PP 1 DP 2", "tensor-parallel-size: 3 is replaced by 2: 8 attention heads cannot be split 3 ways",
		},
		{
			"more than a machine has",
			planner.EngineSettings{TensorParallel: 8},
			"Swifts",
			"1 × Swifts (4 × Swift), TP 4 PP 1 DP 1", "tensor-parallel-size: 8 is replaced by 4: no allowed machine has more than 4 GPUs",
		},
		{
			"more stages than layers",
			planner.EngineSettings{PipelineParallel: 99},
			"Swifts",
			"5 × Swifts (3 of 4 × Swift), TP 1 PP 15 DP 1", "pipeline-parallel-size: 99 is replaced by 15: the model has 15 layers",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan, err := ask(t, city(t), planner.Request{Constraints: planner.Constraints{InstanceType: tc.only, Engine: tc.settings}})
			if got := answer(plan, err); !strings.HasPrefix(got, tc.want) {
				t.Errorf("planned %s, want %s", got, tc.want)
			}
			if tc.warning != "" && !slices.Contains(plan.Warnings, tc.warning) || tc.warning == "" && len(plan.Warnings) > 0 {
				t.Errorf("warnings %q, want %q", plan.Warnings, tc.warning)
			}
		})
	}
}

// A plan uses as many GPUs as the user asks for, a power of two or not.
func TestGPUsOfTensors(t *testing.T) {
	for _, tc := range []struct {
		reason string
		gpus   int
		gib    float64
		want   string
	}{
		{"three copies", 3, 16, "1 × Swifts (3 of 4 × Swift), TP 1 PP 1 DP 3"},
		{"three stages of what one GPU does not hold", 3, 60, "1 × Swifts (3 of 4 × Swift), TP 1 PP 3 DP 1"},
		{"two of four", 2, 60, "1 × Swifts (2 of 4 × Swift), TP 2 PP 1 DP 1"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			w.Models[0].Artifacts = []model.Artifact{artifactOf("f16", true, tc.gib)}
			got := answer(ask(t, w, planner.Request{Constraints: planner.Constraints{InstanceType: "Swifts", GPUs: tc.gpus}}))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// The nearest tensor-parallel size that heads and machines allow replaces the user's, a power of two or not.
func TestNearestTensorParallel(t *testing.T) {
	for _, tc := range []struct {
		reason                string
		heads, gpus, set, get int
	}{
		{"legal ones stay", 24, 8, 6, 6},
		{"6 and 8 are as near to 7, the smaller one takes fewer GPUs", 24, 8, 7, 6},
		{"5 is near 4 and 6", 24, 8, 5, 4},
		{"the machines end it", 24, 2, 12, 2},
		{"one GPU leaves no choice", 24, 1, 3, 1},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			s := &w.Models[0].Shape
			s.Heads, s.KVHeads, s.Intermediate = tc.heads, tc.heads, 1024*3
			w.SKUs = []sku.SKU{machineOf("Some", "GPU-0", tc.gpus, 1)}
			plan, err := ask(t, w, planner.Request{Constraints: planner.Constraints{Engine: planner.EngineSettings{TensorParallel: tc.set}}})
			if err != nil {
				t.Fatal(err)
			}
			if plan.TensorParallel != tc.get || (len(plan.Warnings) > 0) != (tc.set != tc.get) {
				t.Errorf("tensor-parallel-size %d with %d heads on %s became %d, warnings %q",
					tc.set, tc.heads, plan.Summary(), plan.TensorParallel, plan.Warnings)
			}
		})
	}
}

// The engine does not start with fewer tokens in a batch than sequences.
func TestSequences(t *testing.T) {
	const fewer = "max-num-seqs: 2 on 1 replica is below inference.objectives.concurrency (8): further requests wait"
	for _, tc := range []struct {
		reason                       string
		settings                     planner.EngineSettings
		concurrency                  int
		sequences, batch, concurrent int
		warning                      string
	}{
		{"the default", planner.EngineSettings{}, 0, 256, 2048, 11, ""},
		{"fewer than the usual concurrency", planner.EngineSettings{MaxNumSeqs: 2}, 0, 2, 2048, 2, ""},
		{"fewer than the concurrency that is asked for", planner.EngineSettings{MaxNumSeqs: 2}, 8, 2, 2048, 8, fewer},
		{"more than the default batch", planner.EngineSettings{MaxNumSeqs: 3000}, 0, 3000, 3000, 11, ""},
		{"more than the batch that is asked for", planner.EngineSettings{MaxNumSeqs: 600, MaxBatchedTokens: 512}, 0, 600, 600, 11, ""},
		{"a batch that is asked for", planner.EngineSettings{MaxBatchedTokens: 4096}, 0, 256, 4096, 11, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan, err := ask(t, city(t), planner.Request{
				Objectives:  planner.Objectives{Concurrency: tc.concurrency},
				Constraints: planner.Constraints{InstanceType: "Swift", Engine: tc.settings},
			})
			if err != nil {
				t.Fatal(err)
			}
			if plan.MaxNumSeqs != tc.sequences || plan.MaxBatchedTokens != tc.batch || plan.Concurrency != tc.concurrent {
				t.Errorf("%d sequences in batches of %d, concurrency %d; want %d, %d, %d",
					plan.MaxNumSeqs, plan.MaxBatchedTokens, plan.Concurrency, tc.sequences, tc.batch, tc.concurrent)
			}
			if tc.warning != "" && !slices.Contains(plan.Warnings, tc.warning) || tc.warning == "" && len(plan.Warnings) > 0 {
				t.Errorf("warnings %q, want %q", plan.Warnings, tc.warning)
			}
		})
	}
}

// Local disks count only if the administrator puts pods on them.
func TestLocalDisk(t *testing.T) {
	const beginning = "DoesNotFit: chat works on none of the 2 machine types allowed; the largest, Local: "
	const end = ": have the administrator give its NodeClass a larger OS disk; no machine type of the catalogue is suitable"
	const lacks = beginning + "has a disk of 18 GiB, but image and weights need 19 GiB" + end
	const lacksTwice = beginning + "has a disk of 19 GiB, but image and weights need 35 GiB" + end
	for _, tc := range []struct {
		reason   string
		settings planner.Settings
		weights  planner.WeightsDisk
		want     string
	}{
		{"an OS disk that is not known holds everything", planner.Settings{}, planner.WeightsOnce, "1 × Plain (1 × G-40)"},
		{"an OS disk that is large enough", planner.Settings{OSDiskGiB: 19}, planner.WeightsOnce, "1 × Plain (1 × G-40)"},
		{"an OS disk that is not", planner.Settings{OSDiskGiB: 18}, planner.WeightsOnce, lacks},
		{"weights on a volume take none of it", planner.Settings{OSDiskGiB: 18}, planner.WeightsElsewhere, "1 × Plain (1 × G-40)"},
		{"an image of weights takes twice as much", planner.Settings{OSDiskGiB: 19}, planner.WeightsTwice, lacksTwice},
		{"the local disk of the machine that has one", planner.Settings{OSDiskGiB: 18, LocalDisk: true}, planner.WeightsOnce, "1 × Local (1 × G-40)"},
		{"the OS disk where it is the larger one", planner.Settings{OSDiskGiB: 19, LocalDisk: true}, planner.WeightsOnce, "1 × Plain (1 × G-40)"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := town()
			m := chat()
			m.Artifacts = m.Artifacts[:1]
			w.Models = []model.Model{m}
			w.SKUs = []sku.SKU{machineOf("Local", "G-40", 1, 2), machineOf("Plain", "G-40", 1, 1)}
			w.SKUs[0].LocalDiskGiB = 100
			plan, err := planner.New(w.load(t), tc.settings).Plan(planner.Request{Model: &m, Weights: tc.weights})
			got := plan.Summary()
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}
