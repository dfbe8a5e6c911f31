// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/pkg/cost"
)

// busy returns a charge of Workspace a/chat on one type of machine, with serving hours and tokens.
func busy(period string, hours float64, prompt, output int64) cost.Charge {
	return cost.Charge{
		Key: cost.Key{Namespace: "a", Workspace: "chat", InstanceType: "big"}, Period: period,
		Cells: cost.Cells{Serving: cost.Amount{Millis: int64(hours * 3_600_000)}, Prompt: prompt, Output: output},
	}
}

func TestLoadOf(t *testing.T) {
	other, older := busy("2026-11-20T01", 1, 9_000_000, 9_000_000), busy("2026-11-20T01", 1, 9_000_000, 9_000_000)
	other.Workspace, older.InstanceType = "draw", "small"
	tests := []struct {
		reason   string
		charges  []cost.Charge
		machines int
		want     cost.Load
	}{
		{reason: "nothing", machines: 1},
		{reason: "of others, and of other machines", charges: []cost.Charge{other, older}, machines: 1},
		{
			reason: "the busiest hour", charges: []cost.Charge{busy("2026-11-20T01", 1, 3600, 7200), busy("2026-11-20T02", 1, 10_800, 3600), other, older}, machines: 1,
			want: cost.Load{Serving: 2 * time.Hour, Hourly: 2 * time.Hour, Prompt: 14_400, Output: 10_800, Busiest: cost.Rate{Prompt: 3, Output: 2}},
		},
		{
			reason: "two machines serve together", charges: []cost.Charge{busy("2026-11-20T01", 2, 3600, 3600)}, machines: 2,
			want: cost.Load{Serving: time.Hour, Hourly: time.Hour, Prompt: 3600, Output: 3600, Busiest: cost.Rate{Prompt: 1, Output: 1}},
		},
		{
			reason: "accounts of one hour belong together", charges: []cost.Charge{busy("2026-11-20T01", 0.5, 1800, 1800), busy("2026-11-20T01", 0.5, 1800, 1800)}, machines: 1,
			want: cost.Load{Serving: time.Hour, Hourly: time.Hour, Prompt: 3600, Output: 3600, Busiest: cost.Rate{Prompt: 1, Output: 1}},
		},
		{
			reason: "a busy day is raised as the busiest hour exceeds its mean", machines: 1,
			charges: []cost.Charge{busy("2026-11-20T01", 1, 3600, 5400), busy("2026-11-20T02", 1, 3600, 1800), busy("2026-11-10", 24, 86_400, 864_000)},
			want: cost.Load{
				Serving: 26 * time.Hour, Hourly: 2 * time.Hour, Prompt: 93_600, Output: 871_200, Busiest: cost.Rate{Prompt: 1, Output: 15},
			},
		},
		{
			reason: "tokens of a minute are no rate of an hour", charges: []cost.Charge{busy("2026-11-20T01", 1.0/60, 900, 900)}, machines: 1,
			want: cost.Load{Serving: time.Minute, Hourly: time.Minute, Prompt: 900, Output: 900, Busiest: cost.Rate{Prompt: 1, Output: 1}},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := cost.LoadOf(test.charges, cost.Name{Namespace: "a", Workspace: "chat"}, "big", test.machines)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadProblem(t *testing.T) {
	enough := cost.Load{Serving: 72 * time.Hour, Hourly: 24 * time.Hour, Output: 100_000}
	for i, test := range []struct {
		change func(*cost.Load)
		want   string
	}{
		{func(*cost.Load) {}, ""},
		{func(l *cost.Load) { l.Serving -= time.Minute }, "the model answered for only 2.9 days of the period on the present machine type, and advice requires 3.0"},
		{func(l *cost.Load) { l.Hourly -= time.Minute }, "the model answered for only 23 of the last 48 hours, and advice requires 24"},
		{func(l *cost.Load) { l.Output = 0 }, "no tokens were counted: if nobody uses the model, suspend the Workspace; otherwise check the chart's value cost.countTokens"},
		{func(l *cost.Load) { l.Output-- }, "only 99999 output tokens were counted, and advice requires 100000"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			load := enough
			test.change(&load)
			if got := load.Problem(); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
