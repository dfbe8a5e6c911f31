// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/planner"
)

// The planner's choice of a layout over the GPUs of a paid machine.
func TestMachinesAreUsedWhole(t *testing.T) {
	c := realCatalog(t)
	for _, tc := range []struct {
		reason, model, machine string
		settings               planner.EngineSettings
		tpot                   time.Duration
		want                   string
		idle                   string
	}{
		{
			reason: "a mixture has no copies, so all GPUs share it", model: "gpt-oss-120b", machine: "Standard_ND96isr_H100_v5",
			want: "TP 8 PP 1 DP 1 on 8 GPUs",
		},
		{
			reason: "copies of a dense model use what is left", model: "llama-3.1-8b-instruct", machine: "Standard_ND96isr_H100_v5",
			want: "TP 1 PP 1 DP 8 on 8 GPUs",
		},
		{
			reason: "what the user sets leaves GPUs alone", model: "gpt-oss-120b", machine: "Standard_ND96isr_H100_v5",
			settings: planner.EngineSettings{TensorParallel: 2}, want: "TP 2 PP 1 DP 1 on 2 GPUs",
		},
		{
			reason: "more GPUs would make it slower: the warning says what idles and its price", model: "gpt-oss-20b",
			machine: "Standard_NC96ads_A100_v4", want: "TP 2 PP 1 DP 1 on 2 GPUs",
			idle: "the model leaves 2 GPUs of 4 on Standard_NC96ads_A100_v4 idle ($7.35/h of $14.69/h): using them would not make the model faster",
		},
		{
			reason: "linked GPUs cut layers rather than wait for stages", model: "llama-3.3-70b-instruct", machine: "Standard_ND96isr_H100_v5",
			want: "TP 2 PP 1 DP 4 on 8 GPUs",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m, known := c.Model(tc.model)
			if !known {
				t.Fatal("the model is missing")
			}
			plan, err := planner.New(c, planner.Settings{}).Plan(planner.Request{
				Model: &m, Engine: "vllm", Constraints: planner.Constraints{InstanceType: tc.machine, Engine: tc.settings},
			})
			got := fmt.Sprintf("TP %d PP %d DP %d on %d GPUs", plan.TensorParallel, plan.PipelineParallel, plan.DataParallel, plan.GPUsPerNode)
			if err != nil {
				got = "refused"
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			at := slices.IndexFunc(plan.Warnings, func(text string) bool { return strings.Contains(text, " idle") })
			if (at >= 0) != (tc.idle != "") || at >= 0 && !strings.HasPrefix(plan.Warnings[at], tc.idle) {
				t.Errorf("warnings %q, want %q", plan.Warnings, tc.idle)
			}
		})
	}
}
