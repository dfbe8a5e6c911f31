// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// chosen is the part of a plan about 16-bit formats.
type chosen struct {
	Accelerator, Quantization string
	Flags                     []model.Flag
}

func TestFloat16StandsInForBFloat16(t *testing.T) {
	const t4, a100 = "Standard_NC4as_T4_v3", "Standard_NC24ads_A100_v4"
	lacking := []model.Flag{{Name: "dtype", Value: "half", Why: "the GPUs cannot compute in bf16"}}
	told := []model.Flag{{Name: "dtype", Value: "half", Why: "inference.engine.args requests it"}}
	for _, tc := range []struct {
		reason, model, machine, dtype string
		allowed                       []string
		want                          chosen
		refused                       string
	}{
		{
			reason: "a model that survives it is served on GPUs without bf16",
			model:  "llama-3.2-3b-instruct", machine: t4, want: chosen{"T4", "fp16", lacking},
		},
		{
			reason: "GPUs with bf16 keep it",
			model:  "llama-3.2-3b-instruct", machine: a100, want: chosen{"A100-80", "bf16", nil},
		},
		{
			reason: "a user who asks for it gets it everywhere",
			model:  "llama-3.2-3b-instruct", machine: a100, dtype: "half", want: chosen{"A100-80", "fp16", told},
		},
		{
			reason: "a user who asks for bf16 gets no other GPU",
			model:  "llama-3.2-3b-instruct", machine: t4, dtype: "bfloat16", refused: v1beta1.ReasonDoesNotFit,
		},
		{
			reason: "of other models nobody has published that it works",
			model:  "smollm2-1.7b-instruct", machine: t4, refused: v1beta1.ReasonDoesNotFit,
		},
		{
			reason: "they take consent",
			model:  "smollm2-1.7b-instruct", machine: t4, allowed: []string{"fp16"}, want: chosen{"T4", "fp16", lacking},
		},
		{
			reason: "consent does not help a model that breaks",
			model:  "gemma-3-4b-it", machine: t4, allowed: []string{"half"}, refused: v1beta1.ReasonDoesNotFit,
		},
		{
			reason: "the engine would not start with the flag",
			model:  "gemma-3-4b-it", machine: a100, dtype: "float16", refused: v1beta1.ReasonSpecInvalid,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c := realCatalog(t)
			m, known := c.Model(tc.model)
			if !known {
				t.Fatalf("there is no model %s", tc.model)
			}
			plan, err := planner.New(c, planner.Settings{}).Plan(planner.Request{Model: &m, Constraints: planner.Constraints{
				InstanceType: tc.machine, AllowedQuantizations: tc.allowed, Engine: planner.EngineSettings{DType: tc.dtype},
			}})
			if infeasible, ok := errors.AsType[*planner.InfeasibleError](err); ok {
				if infeasible.Reason != tc.refused {
					t.Errorf("refused: %v, want %q", err, tc.refused)
				}
				return
			}
			if err != nil || tc.refused != "" {
				t.Fatalf("error %v, want %q", err, tc.refused)
			}
			got := chosen{plan.Accelerator, plan.Artifact.Quantization, plan.Artifact.Flags}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestConsentToFloat16IsNotUnknown(t *testing.T) {
	c := realCatalog(t)
	for _, tc := range []struct {
		reason, model string
		want          int
	}{
		{"bf16 can be converted", "smollm2-1.7b-instruct", 0},
		{"a model that breaks is not published so", "gemma-3-4b-it", 1},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m, _ := c.Model(tc.model)
			plan, err := planner.New(c, planner.Settings{}).Plan(planner.Request{
				Model: &m, Constraints: planner.Constraints{AllowedQuantizations: []string{"fp16"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.Warnings) != tc.want {
				t.Errorf("warnings %q, want %d", plan.Warnings, tc.want)
			}
		})
	}
}
