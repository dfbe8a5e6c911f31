// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"testing"

	"github.com/modelberth/modelberth/pkg/planner"
)

// A family's name allows all its formats. Among formats with equally many bits, the ones that the GPU computes in come
// first.
func TestFamiliesOfFormats(t *testing.T) {
	c := realCatalog(t)
	for _, tc := range []struct {
		reason, model, machine string
		allowed                []string
		want                   string
	}{
		{"fp8 allows scales by channel", "llama-3.3-70b-instruct", "Standard_NC40ads_H100_v5", []string{"fp8"}, "fp8-channel"},
		{"int4 allows what is published in 4 bits", "qwen3-14b", "Standard_NC4as_T4_v3", []string{"int4"}, "awq"},
		{"an alias is the format", "llama-3.3-70b-instruct", "Standard_NC40ads_H100_v5", []string{"fp8-dynamic"}, "fp8-channel"},
		{
			"A100 does not compute in fp4", "llama-3.3-70b-instruct", "Standard_NC24ads_A100_v4",
			[]string{"nvfp4", "w4a16"},
			"w4a16",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m, known := c.Model(tc.model)
			if !known {
				t.Fatal("the model is missing")
			}
			plan, err := planner.New(c, planner.Settings{}).Plan(planner.Request{
				Model: &m, Engine: "vllm", Constraints: planner.Constraints{InstanceType: tc.machine, AllowedQuantizations: tc.allowed, MaxNodes: 1},
			})
			got := "refused"
			if err == nil {
				got = plan.Artifact.Quantization
			}
			if got != tc.want {
				t.Errorf("planned %s (%v), want %s", got, err, tc.want)
			}
		})
	}
}
