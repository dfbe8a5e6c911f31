// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
)

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		request planner.Request
		want    planner.InfeasibleError
	}{
		{
			"nothing to plan for",
			planner.Request{},
			planner.InfeasibleError{Reason: v1beta1.ReasonSpecInvalid, Message: "the Workspace names no model: set inference.preset or inference.template"},
		},
		{
			"a machine type that does not exist",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "Eigt"}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonUnknownInstanceType,
				Message: `resource.instanceType: instance type "Eigt" is not in the catalogue: did you mean Eight?`,
			},
		},
		{
			"a machine type that does not exist, for a template",
			planner.Request{Template: &planner.TemplateDemand{Nodes: 1}, Constraints: planner.Constraints{InstanceType: "Nonesuch"}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonUnknownInstanceType,
				Message: `resource.instanceType: instance type "Nonesuch" is not in the catalogue: check its spelling, or ask the administrator to add it`,
			},
		},
		{
			"no machine type of the list exists",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceTypes: []string{"Eigt"}}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonUnknownInstanceType,
				Message: `none of resource.placement.instanceTypes is known: instance type "Eigt" is not in the catalogue: did you mean Eight?`,
			},
		},
		{
			"a machine type that cannot be bought",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "retired"}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonInstanceTypeUnusable,
				Message: "resource.instanceType: Retired cannot be used: gone since 2020; name another machine type, or leave instanceType out",
			},
		},
		{
			"a machine type of another cloud",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "far"}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonInstanceTypeUnusable,
				Message: "resource.instanceType: Far is a machine type of aws, but this installation buys from azure: " +
					"name one of its machine types, or leave instanceType out",
			},
		},
		{
			"a machine type whose GPU is not allowed",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "One", Accelerators: []string{"G-12"}}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonNoMachineAllowed,
				Message: "resource.instanceType: One: not among the allowed accelerators; remove instanceType, or change the limit that excludes it",
			},
		},
		{
			"a GPU that no machine has",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{Accelerators: []string{"G-4"}}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonNoMachineAllowed,
				Message: "resource.placement and resource.count together leave no machine type: widen them; " +
					"resource.placement.accelerators: no machine has a GPU named G-4: did you mean G-40?",
			},
		},
		{
			"more GPUs than any machine has",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "Four", GPUs: 5}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonNoMachineAllowed,
				Message: "resource.instanceType: Four: has 4 GPUs, but 5 are requested; remove instanceType, or change the limit that excludes it",
			},
		},
		{
			"more GPUs than the model has layers",
			planner.Request{Model: modelOf("shallow"), Constraints: planner.Constraints{InstanceType: "Eight", GPUs: 4}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonDoesNotFit,
				Message: "shallow on Eight: 4 GPUs are requested, but the model's layers spread over at most 3; " +
					"Small ($0.50/h) is suitable",
			},
		},
		{
			"more nodes than are allowed",
			planner.Request{Template: &planner.TemplateDemand{Nodes: 3}, Constraints: planner.Constraints{MaxNodes: 2, InstanceType: "One"}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonNoMachineAllowed,
				Message: "resource.instanceType: One: needs 3 machines, but the limit is 2 (resource.count); remove instanceType, or change the limit that excludes it",
			},
		},
		{
			"a machine that is too small, and what would help",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "Small"}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonDoesNotFit,
				Message: "chat on Small: does not fit by 5.2 GiB per GPU at 2048 tokens × 1; " +
					"with inference.engine.allowedQuantizations: [q4] it works on Small ($0.50/h)",
			},
		},
		{
			"a machine whose GPU is too old",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{InstanceType: "Ancient"}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonDoesNotFit,
				Message: "chat on Ancient: engine engine needs compute capability 7.5, but Old-40 has 7.0; " +
					"One ($2.00/h) is suitable",
			},
		},
		{
			"objectives that no machine holds",
			planner.Request{Model: modelOf("chat"), Objectives: planner.Objectives{Concurrency: 100000}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonDoesNotFit,
				Message: "chat works on none of the 8 machine types allowed; the largest, Eight: does not fit by 6213.2 GiB per GPU " +
					"at 8192 tokens × 100000; an InferenceSet of 391 replicas with inference.objectives.concurrency: 256 serves the load on Eight ($14.69/h) each, $5744.57/h in all",
			},
		},
		{
			"a machine type that was just refused",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				InstanceType: "One", Excluded: []planner.Exclusion{{InstanceType: "One", Reason: "no quota until 13:00"}},
			}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonNoMachineAllowed,
				Message: "resource.instanceType: One: no quota until 13:00; remove instanceType, or change the limit that excludes it",
			},
		},
		{
			"on demand was just refused: a reservation that nobody knows of is no way out",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
				InstanceType: "One", Excluded: []planner.Exclusion{
					{InstanceType: "One", CapacityType: v1beta1.CapacityOnDemand, Reason: "no quota until 13:00"},
				},
			}},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonNoMachineAllowed,
				Message: "resource.instanceType: One: no quota until 13:00; remove instanceType, or change the limit that excludes it",
			},
		},
		{
			"a limit on the price that leaves nothing",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{MaxHourlyPrice: 1.9999}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonNoMachineAllowed,
				Message: "the cheapest plan is 1 × One at $2.0000/h, above resource.placement.maxHourlyPrice $1.9999/h: raise the limit; " +
					"with inference.engine.allowedQuantizations: [q4] it works on Small ($0.50/h)",
			},
		},
		{
			"a limit on the price where no price is known",
			planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{MaxHourlyPrice: 100, InstanceType: "Unpriced"}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonNoMachineAllowed,
				Message: "no suitable machine has a known price in eastus, so resource.placement.maxHourlyPrice $100.00/h cannot be checked: " +
					"have the administrator add prices, or leave maxHourlyPrice out",
			},
		},
		{
			"a template that asks for more GPUs than any machine has",
			planner.Request{Template: &planner.TemplateDemand{Nodes: 1, GPUs: 9}},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonDoesNotFit,
				Message: "the template works on none of the 8 machine types allowed; the largest, Eight: has 8 GPUs, " +
					"but the template requests 9; no machine type of the catalogue is suitable",
			},
		},
		{
			"an engine that does not exist",
			planner.Request{Model: modelOf("chat"), Engine: "turbine"},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonEngineUnknown,
				Message: `inference.engine.name: "turbine" is not an engine of this version: use engine or spare, or leave it out`,
			},
		},
		{
			"an engine that the model has no weights for",
			planner.Request{Model: modelOf("chat"), Engine: "spare"},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonNotSupported,
				Message: "inference.engine.name: preset chat has no weights for engine spare: leave inference.engine.name out",
			},
		},
		{
			"a model that waits for an engine",
			planner.Request{Model: modelOf("later")},
			planner.InfeasibleError{
				Reason:  v1beta1.ReasonNotSupported,
				Message: "preset later needs the vllm engine; this version serves chat, reduced, shallow",
			},
		},
		{
			"a model that needs consent",
			planner.Request{Model: modelOf("reduced")},
			planner.InfeasibleError{
				Reason: v1beta1.ReasonNotSupported,
				Message: "preset reduced is published for engine engine in reduced precision only (q8, q4), which needs your consent: " +
					"set inference.engine.allowedQuantizations, for example to [q8]",
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan, err := inTown(t).Plan(tc.request)
			got, ok := errors.AsType[*planner.InfeasibleError](err)
			if !ok {
				t.Fatalf("got plan %s, error %v, want an InfeasibleError", plan.Summary(), err)
			}
			tc.want.Rejected = got.Rejected
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// Names in a manifest can be long and many, but the API limits the length of a plan's warnings.
func TestWarningsAreBounded(t *testing.T) {
	long := []string{"One"}
	for i := range 19 {
		long = append(long, strings.Repeat(fmt.Sprint(i%10), 253))
	}
	plan, err := inTown(t).Plan(planner.Request{Model: modelOf("chat"), Constraints: planner.Constraints{
		InstanceTypes: long, Accelerators: append([]string{"G-40"}, long...), AllowedQuantizations: long,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Warnings) != 3 {
		t.Errorf("%d warnings, want one for each list: %q", len(plan.Warnings), plan.Warnings)
	}
	for _, warning := range plan.Warnings {
		if n := len([]rune(warning)); n > 512 {
			t.Errorf("a warning has %d characters, the API admits 512: %s", n, warning)
		}
	}
}
