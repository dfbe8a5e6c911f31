// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/planner"
)

// On the user's request, GPUs with copies of the KV cache hold different tokens instead.
func TestContextParallel(t *testing.T) {
	c, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, model string
		wanted, tp    int
		want          int
		warning       string
	}{
		{"latent vectors are on every GPU", "deepseek-ai/DeepSeek-V3-0324", 8, 8, 8, ""},
		{"two of eight GPUs hold each of four KV heads", "Qwen/Qwen3-235B-A22B-Instruct-2507", 2, 8, 2, ""},
		{
			"not four of them", "Qwen/Qwen3-235B-A22B-Instruct-2507", 4, 8, 2,
			"decode-context-parallel-size: 4 is replaced by 2: each of 4 KV heads is on 2 of 8 GPUs",
		},
		{
			"a number that does not divide the GPUs", "deepseek-ai/DeepSeek-V3-0324", 3, 8, 2,
			"decode-context-parallel-size: 3 is replaced by 2: 8 GPUs cannot be divided by 3",
		},
		{
			"windows are not spread", "openai/gpt-oss-120b", 2, 8, 1,
			"decode-context-parallel-size: 2 is replaced by 1: some layers have sliding-window attention or a recurrent state",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m, err := c.ResolveModel(tc.model)
			if err != nil {
				t.Fatal(err)
			}
			ask := func(cp int) planner.Plan {
				plan, err := planner.New(c, planner.Settings{}).Plan(planner.Request{Model: &m, Constraints: planner.Constraints{
					InstanceType: "Standard_ND96isr_H200_v5", Engine: planner.EngineSettings{TensorParallel: tc.tp, ContextParallel: cp},
				}})
				if err != nil {
					t.Fatal(err)
				}
				return plan
			}
			plan, plain := ask(tc.wanted), ask(0)
			if plan.ContextParallel != tc.want {
				t.Errorf("over %d GPUs, want %d (%q)", plan.ContextParallel, tc.want, plan.Warnings)
			}
			if tc.warning != "" && !slices.Contains(plan.Warnings, tc.warning) {
				t.Errorf("warnings %q, want %q", plan.Warnings, tc.warning)
			}
			if more := float64(plan.KVCacheTokens) / float64(plain.KVCacheTokens); more < 0.99*float64(tc.want) || more > 1.01*float64(tc.want) {
				t.Errorf("%.2f × the tokens, want %d ×", more, tc.want)
			}
		})
	}
}
