// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Layouts of mixtures of experts on named machine types.
func TestExpertParallel(t *testing.T) {
	yes, no := true, false
	const h100, h200 = "Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5"
	for _, tc := range []struct {
		reason, model, machine string
		optimizeFor            v1beta1.OptimizeFor
		settings               planner.EngineSettings
		want                   string
		warning                string
	}{
		{
			reason: "for Cost what is measured comes first", model: "deepseek-r1-0528", machine: h200,
			want: "TP 8 PP 1 DP 1, experts cut",
		},
		{
			reason: "for Latency too", model: "deepseek-r1-0528", machine: h200, optimizeFor: v1beta1.OptimizeForLatency,
			want: "TP 8 PP 1 DP 1, experts cut",
		},
		{
			reason: "most tokens are expected of replicas that share the experts", model: "gpt-oss-120b", machine: h100,
			optimizeFor: v1beta1.OptimizeForThroughput,
			want:        "TP 2 PP 1 DP 4, experts whole",
			warning:     "a token takes 75 ms (estimated), close to the limit of 100ms",
		},
		{
			reason: "the user's number of replicas", model: "deepseek-r1-0528", machine: h200,
			settings: planner.EngineSettings{DataParallel: 8}, want: "TP 1 PP 1 DP 8, experts whole",
		},
		{
			reason: "experts do not come out even", model: "gpt-oss-120b", machine: h100,
			settings: planner.EngineSettings{DataParallel: 3}, want: "TP 1 PP 1 DP 2, experts whole",
			warning: "data-parallel-size: 3 is replaced by 2: 128 experts cannot be spread evenly over 3 GPUs",
		},
		{
			reason: "the user keeps them whole within a replica", model: "gpt-oss-120b", machine: h100,
			settings: planner.EngineSettings{TensorParallel: 2, ExpertParallel: &yes}, want: "TP 2 PP 1 DP 1, experts whole",
		},
		{
			reason: "the user has replicas, and forbids what they share", model: "gpt-oss-120b", machine: h100,
			settings: planner.EngineSettings{DataParallel: 2, ExpertParallel: &no}, want: "TP 1 PP 1 DP 1, experts cut",
			warning: "data-parallel-size: 2 is replaced by 1: data-parallel replicas share the model's experts, but enable-expert-parallel is off",
		},
		{
			reason: "an expert of 12 blocks is not cut 8 ways, and need not be", model: "minimax-m2.5", machine: h100,
			settings: planner.EngineSettings{TensorParallel: 8}, want: "TP 8 PP 1 DP 1, experts whole",
		},
		{
			reason: "unless the user says so", model: "minimax-m2.5", machine: h100,
			settings: planner.EngineSettings{TensorParallel: 8, ExpertParallel: &no}, want: "TP 4 PP 1 DP 1, experts cut",
			warning: "tensor-parallel-size: 8 is replaced by 4: experts of width 1536 cannot be split 8 ways in fp8's blocks of 128",
		},
		{
			reason: "a model without experts", model: "llama-3.3-70b-instruct", machine: h100,
			settings: planner.EngineSettings{DataParallel: 2, ExpertParallel: &yes}, want: "TP 2 PP 1 DP 2, experts cut",
			warning: "enable-expert-parallel: true is replaced by false: the model has no experts",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c := realCatalog(t)
			m, known := c.Model(tc.model)
			if !known {
				t.Fatal("the model is missing")
			}
			plan, err := planner.New(c, planner.Settings{Region: "eastus2"}).Plan(planner.Request{
				Model: &m, Engine: "vllm", Objectives: planner.Objectives{OptimizeFor: tc.optimizeFor},
				Constraints: planner.Constraints{InstanceType: tc.machine, Engine: tc.settings},
			})
			if err != nil {
				t.Fatal(err)
			}
			experts := map[bool]string{true: "whole", false: "cut"}[plan.ExpertParallel]
			got := fmt.Sprintf("TP %d PP %d DP %d, experts %s", plan.TensorParallel, plan.PipelineParallel, plan.DataParallel, experts)
			if diff := cmp.Diff(tc.want+"\n"+tc.warning, got+"\n"+strings.Join(plan.Warnings, "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if plan.ExpertParallel && plan.Performance.Basis != v1beta1.BasisEstimated {
				t.Errorf("its speed is said to be %s, and nobody measured it", plan.Performance.Basis)
			}
		})
	}
}
