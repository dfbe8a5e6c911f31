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
)

func modelOf(name string) *model.Model {
	for _, m := range town().Models {
		if m.Name == name {
			return &m
		}
	}
	return nil
}

// The whole plan for the simplest request.
func TestPlan(t *testing.T) {
	got, err := inTown(t).Plan(planner.Request{Model: modelOf("chat")})
	if err != nil {
		t.Fatal(err)
	}
	artifact := chat().Artifacts[0]
	want := planner.Plan{
		// One and Four cost the same. The option with fewer GPUs wins.
		InstanceType: "One", Nodes: 1, Accelerator: "G-40", GPUResource: "nvidia.com/gpu", GPUsPerNode: 1, ComputeCapability: "8.0", MachineGPUs: 1,
		CapacityType: v1beta1.CapacityOnDemand, TensorParallel: 1, PipelineParallel: 1, DataParallel: 1,
		Engine: "engine", Artifact: &artifact,
		// Four sequences of the model's whole context.
		MaxModelLen: 32768, Concurrency: 4,
		Memory: &planner.Memory{Total: 40, Weights: 15.999, KVCache: 7.5, Overhead: 1, Basis: v1beta1.BasisMeasured},
		// 16 GiB of weights, 2 of image, 1 to spare.
		DiskGiB: 19, CPUs: 2, MemoryGiB: 4, HourlyPrice: 2,
		Alternatives: []planner.Verdict{
			{InstanceType: "Four", Nodes: 1, HourlyPrice: 2, GPUsPerNode: 2, TensorParallel: 1, PipelineParallel: 2, DataParallel: 1, Reason: "same price: uses 2 GPUs, the plan uses 1"},
			{InstanceType: "Spot", Nodes: 1, HourlyPrice: 3, GPUsPerNode: 1, TensorParallel: 1, PipelineParallel: 1, DataParallel: 1, Reason: "costs more: $3.00/h instead of $2.00/h"},
			{InstanceType: "Eight", Nodes: 1, HourlyPrice: 14.692, GPUsPerNode: 1, TensorParallel: 1, PipelineParallel: 1, DataParallel: 1, Reason: "costs more: $14.69/h instead of $2.00/h"},
		},
		Rejected: []planner.Verdict{
			{InstanceType: "Ancient", Nodes: 1, HourlyPrice: 0.1, Reason: "engine engine needs compute capability 7.5, but Old-40 has 7.0"},
			{InstanceType: "Foreign", Nodes: 1, HourlyPrice: 0.1, Reason: "engine engine needs an NVIDIA GPU of compute capability 7.5 or higher, but Other-99 is from another maker"},
			{InstanceType: "Retired", Nodes: 1, HourlyPrice: 1, Reason: "cannot be bought: gone since 2020"},
			{InstanceType: "Small", Nodes: 1, HourlyPrice: 0.5, Reason: "does not fit by 5.5 GiB per GPU at 8192 tokens × 1"},
			{InstanceType: "Unpriced", Nodes: 1, HourlyPrice: -1, Reason: "no price known in eastus, so a plan uses it only if you name it"},
		},
		Advice: []string{"with q4 weights (org/weights), the model would run on Small ($0.50/h) instead of $2.00/h: " +
			"allow them with inference.engine.allowedQuantizations: [q4]"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// decision is the part of a plan that the tests compare.
type decision struct {
	Summary      string
	Quantization string
	Length       int
	Sequences    int
	CapacityType v1beta1.CapacityType
	Price        float64
	Zones        []string
	Warnings     []string
}

func decide(plan planner.Plan) decision {
	d := decision{
		Summary: plan.Summary(), Length: plan.MaxModelLen, Sequences: plan.Concurrency, CapacityType: plan.CapacityType,
		Price: plan.HourlyPrice, Zones: plan.Zones, Warnings: plan.Warnings,
	}
	if plan.Artifact != nil {
		d.Quantization = plan.Artifact.Quantization
	}
	return d
}

func TestDecisions(t *testing.T) {
	const onDemand = v1beta1.CapacityOnDemand
	for _, tc := range []struct {
		reason  string
		request planner.Request
		want    decision
	}{
		{
			reason:  "a named machine is used as the cloud spells it, with the fewest GPUs that fit",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "eIGHT"}},
			want: decision{
				Summary: "1 × Eight (1 of 8 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 14.692,
			},
		},
		{
			reason:  "layers spread over as many GPUs as it takes",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{Accelerators: []string{"g-12"}}},
			want: decision{
				Summary: "1 × Four (2 of 4 × G-12)", Quantization: "f16", Length: 19968, Sequences: 4, CapacityType: onDemand, Price: 2,
			},
		},
		{
			reason:  "an accelerator may be named by part or alias",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{Accelerators: []string{"gtx"}}},
			want: decision{
				Summary: "1 × Four (2 of 4 × G-12)", Quantization: "f16", Length: 19968, Sequences: 4, CapacityType: onDemand, Price: 2,
			},
		},
		{
			reason:  "as many GPUs as the user asked for",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{GPUs: 3, InstanceType: "Eight"}},
			want: decision{
				Summary: "1 × Eight (3 of 8 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 14.692,
			},
		},
		{
			reason: "a list of machine types, one of them misspelt",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				InstanceTypes: []string{"EIGHT", "Eigt", "nonsense"},
			}},
			want: decision{
				Summary: "1 × Eight (1 of 8 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 14.692,
				Warnings: []string{`resource.placement.instanceTypes: instance type "Eigt" is not in the catalogue: did you mean ` +
					`Eight?; also unknown: nonsense`},
			},
		},
		{
			reason: "an accelerator that no machine has",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				Accelerators: []string{"G-40", "G-41"},
			}},
			want: decision{
				Summary: "1 × One (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 2,
				Warnings: []string{"resource.placement.accelerators: no machine has a GPU named G-41: did you mean G-40?"},
			},
		},
		{
			reason:  "zones are passed on, sorted and distinct",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{Zones: []string{"2", "1", "2"}}},
			want: decision{
				Summary: "1 × One (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 2,
				Zones: []string{"1", "2"},
			},
		},
		{
			reason: "spot only, at the upper bound of its price",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacitySpot},
			}},
			want: decision{
				Summary: "1 × Spot (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: v1beta1.CapacitySpot, Price: 3,
				Warnings: []string{"the price shown is the on-demand price, because the catalogue has no spot price; spot machines usually cost less"},
			},
		},
		{
			reason: "reserved only",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacityReserved},
			}},
			want: decision{
				Summary: "1 × One (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: v1beta1.CapacityReserved, Price: 2,
				Warnings: []string{"the price shown is the on-demand price, although the reservation is already paid for"},
			},
		},
		{
			reason: "an offering that was just refused is passed over, other ways of paying for it are not",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				InstanceTypes: []string{"Spot", "Eight"}, CapacityTypes: []v1beta1.CapacityType{onDemand, v1beta1.CapacitySpot},
				Excluded: []planner.Exclusion{
					{InstanceType: "spot", CapacityType: v1beta1.CapacitySpot, Reason: "no capacity until 12:00"},
					{InstanceType: "One", Reason: "no quota until 13:00"},
				},
			}},
			want: decision{
				Summary: "1 × Spot (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 3,
			},
		},
		{
			reason: "spot where it is sold, on demand elsewhere",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacityOnDemand, v1beta1.CapacitySpot},
			}},
			want: decision{
				Summary: "1 × One (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 2,
			},
		},
		{
			reason:  "consent to a smaller form makes a cheaper machine do",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{AllowedQuantizations: []string{"Q4"}}},
			want: decision{
				Summary: "1 × Small (1 × G-12)", Quantization: "q4", Length: 30464, Sequences: 4, CapacityType: onDemand, Price: 0.5,
			},
		},
		{
			reason: "consent does not change the form where the released one fits",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				InstanceType: "One", AllowedQuantizations: []string{"q4", "fp8"},
			}},
			want: decision{
				Summary: "1 × One (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 2,
				Warnings: []string{"inference.engine.allowedQuantizations: chat is published as f16, q4, not as fp8"},
			},
		},
		{
			reason: "on a named machine, consent comes before lowered objectives",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				InstanceType: "Small", AllowedQuantizations: []string{"q4"},
			}},
			want: decision{
				Summary: "1 × Small (1 × G-12)", Quantization: "q4", Length: 30464, Sequences: 4, CapacityType: onDemand, Price: 0.5,
			},
		},
		{
			reason:  "objectives that are set are what is planned for, no more",
			request: planner.Request{Model: modelOf("chat"), Objectives: planner.Objectives{MaxModelLen: 1000, Concurrency: 7}},
			want: decision{
				Summary: "1 × One (1 × G-40)", Quantization: "f16", Length: 1000, Sequences: 7, CapacityType: onDemand, Price: 2,
			},
		},
		{
			reason:  "a context that the model does not have is replaced by the one it has",
			request: planner.Request{Model: modelOf("chat"), Objectives: planner.Objectives{MaxModelLen: 100000, Concurrency: 1}},
			want: decision{
				Summary: "1 × One (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 1, CapacityType: onDemand, Price: 2,
				Warnings: []string{"inference.objectives.maxModelLen: 100000 is more than the 32768-token context of chat; 32768 is used"},
			},
		},
		{
			reason: "the limit on the price is kept exactly",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				MaxHourlyPrice: 14.692, InstanceTypes: []string{"Eight"},
			}},
			want: decision{
				Summary: "1 × Eight (1 of 8 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: 14.692,
			},
		},
		{
			reason:  "without a price anywhere allowed, the machine is still found",
			request: planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "Unpriced"}},
			want: decision{
				Summary: "1 × Unpriced (1 × G-40)", Quantization: "f16", Length: 32768, Sequences: 4, CapacityType: onDemand, Price: -1,
			},
		},
		{
			reason:  "a template gets the cheapest machines with as many GPUs as it asks for",
			request: planner.Request{Template: &planner.TemplateDemand{Nodes: 3, GPUs: 2}, Constraints: planner.Constraints{MaxNodes: 3}},
			want:    decision{Summary: "3 × Four (2 of 4 × G-12)", CapacityType: onDemand, Price: 6},
		},
		{
			reason:  "a template that asks for no GPU",
			request: planner.Request{Template: &planner.TemplateDemand{}, Constraints: planner.Constraints{InstanceType: "One"}},
			want:    decision{Summary: "1 × One", CapacityType: onDemand, Price: 2},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan, err := inTown(t).Plan(tc.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, decide(plan)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Objectives that the user left open are lowered, the number of sequences first. If there is only one machine type, it
// makes no difference whether the user names it.
func TestLowering(t *testing.T) {
	// 1 GiB is reserved. With 15 layers, 1024 tokens of one sequence take 60 MiB of KV cache.
	for _, tc := range []struct {
		reason     string
		weights    float64
		objectives planner.Objectives
		want       string // summary of the plan, or the error
	}{
		{"everything fits", 8, planner.Objectives{}, "13056 tokens × 4"},
		{"fewer sequences of the target length", 9.9, planner.Objectives{}, "9472 tokens × 2"},
		{"one shorter sequence", 10.7, planner.Objectives{}, "5120 tokens × 1"},
		{
			"not below one sequence of 2048 tokens", 10.95,
			planner.Objectives{},
			"DoesNotFit: lowered on Fixed: does not fit by 0.1 GiB per GPU at 2048 tokens × 1; no machine type of the catalogue is suitable",
		},
		{"sequences that are set are not lowered", 10.4, planner.Objectives{Concurrency: 4}, "2560 tokens × 4"},
		{"a length that is set is not lowered", 10.4, planner.Objectives{MaxModelLen: 4096}, "4096 tokens × 2"},
		{
			"what is set is refused with the numbers", 10.4,
			planner.Objectives{MaxModelLen: 8192, Concurrency: 4},
			"DoesNotFit: lowered on Fixed: does not fit by 1.3 GiB per GPU at 8192 tokens × 4; " +
				"an InferenceSet of 4 replicas with inference.objectives.concurrency: 1 serves the load on Fixed ($1.00/h) each, $4.00/h in all",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := town()
			m := chat()
			m.Name, m.HubID, m.Artifacts = "lowered", "org/lowered", []model.Artifact{artifactOf("f16", true, tc.weights)}
			w.Models = []model.Model{m}
			w.SKUs = w.SKUs[:0]
			w.SKUs = append(w.SKUs, machineOf("Fixed", "G-12-PCIe", 1, 1))
			p := planner.New(w.load(t), planner.Settings{})
			plan, err := p.Plan(planner.Request{Model: &m, Objectives: tc.objectives, Constraints: planner.Constraints{InstanceType: "fixed"}})
			got := fmt.Sprintf("%d tokens × %d", plan.MaxModelLen, plan.Concurrency)
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if err != nil {
				return
			}
			if plan.Memory.Free() < 0 {
				t.Errorf("free memory is %.3f GiB", plan.Memory.Free())
			}
			lowered := plan.Concurrency < 4 || plan.MaxModelLen < 8192 && tc.objectives.MaxModelLen == 0
			warned := len(plan.Warnings) == 1 && strings.Contains(plan.Warnings[0], "instead of the usual")
			if warned != lowered {
				t.Errorf("lowered: %v, warnings: %q", lowered, plan.Warnings)
			}
			without, err := p.Plan(planner.Request{Model: &m, Objectives: tc.objectives})
			if err != nil || decide(without).Sequences != plan.Concurrency || without.MaxModelLen != plan.MaxModelLen {
				t.Errorf("where no machine type is named: %s (%v)", without.Summary(), err)
			}
		})
	}
}

func TestLoweringWarns(t *testing.T) {
	m := chat()
	m.Artifacts = []model.Artifact{artifactOf("f16", true, 9.9)}
	w := town()
	w.Models = []model.Model{m}
	plan, err := planner.New(w.load(t), planner.Settings{}).Plan(planner.Request{
		Model: &m, Constraints: planner.Constraints{InstanceType: "Small"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Small holds 9472 tokens × 2 instead of the usual 8192 tokens × 4: to require the usual target, set inference.objectives.concurrency, " +
		"or leave resource.instanceType out to get a larger machine"}
	if diff := cmp.Diff(want, plan.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// Prices depend on the installation's region.
func TestRegion(t *testing.T) {
	w := town()
	for i := range w.SKUs {
		if w.SKUs[i].Name == "Eight" {
			w.SKUs[i].Prices["westus"] = 1
		}
	}
	plan, err := planner.New(w.load(t), planner.Settings{Region: "westus"}).Plan(planner.Request{Model: modelOf("chat")})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := plan.Summary(), "1 × Eight (1 of 8 × G-40)"; got != want {
		t.Errorf("plan = %s, want %s, the only one with a price there", got, want)
	}
	if len(plan.Alternatives) > 0 {
		t.Errorf("alternatives without a price: %v", plan.Alternatives)
	}
}

// If a machine is not sold in the region, the error names a region that sells it, and its price there.
func TestMachinesOfOtherRegionsAreNamed(t *testing.T) {
	w := town()
	w.SKUs = w.SKUs[:0]
	far := machineOf("Far", "G-40", 1, 2)
	far.Prices = map[string]float64{"westus": 3, "northeurope": 2.5}
	w.SKUs = append(w.SKUs, far)
	p := planner.New(w.load(t), planner.Settings{Region: "eastus"})
	_, err := p.Plan(planner.Request{Model: modelOf("chat")})
	const want = "NoMachineAllowed: no suitable machine type has a known price in eastus: name one in resource.instanceType, " +
		"such as Far ($2.50/h in northeurope), or have the administrator set the region or add prices"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// If the cluster's region is unknown, a warning names the region of the price.
func TestPriceOfAnotherRegionIsSaid(t *testing.T) {
	const want = "the price is for eastus, because this cluster's region is unknown (no node says): have the administrator set the chart's region"
	tests := []struct {
		reason   string
		settings planner.Settings
		want     bool
	}{
		{"nobody knows the region", planner.Settings{RegionUnknown: "no node says"}, true},
		{"the region is left out on purpose", planner.Settings{}, false},
		{"the region is known", planner.Settings{Region: "eastus"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			plan, err := planner.New(town().load(t), tt.settings).Plan(planner.Request{Model: modelOf("chat")})
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(plan.Warnings, want); got != tt.want {
				t.Errorf("warnings %q: the warning is there: %t, want %t", plan.Warnings, got, tt.want)
			}
		})
	}
}
