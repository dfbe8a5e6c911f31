// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

func TestQuote(t *testing.T) {
	p, m := shipped(t, "qwen3-32b")
	accepted, err := p.Plan(planner.Request{Model: m})
	if err != nil {
		t.Fatal(err)
	}
	cheaper := accepted
	cheaper.HourlyPrice = accepted.HourlyPrice / 2
	gone, spot, nodes := accepted, accepted, accepted
	gone.InstanceType = "Standard_Gone"
	spot.CapacityType = v1beta1.CapacitySpot
	nodes.InstanceType, nodes.NodeNames = "", []string{"node-1"}
	tests := []struct {
		reason string
		plan   planner.Plan
		with   planner.Constraints
		want   float64
		why    string
	}{
		{reason: "nothing has changed", plan: accepted, want: accepted.HourlyPrice},
		{reason: "it cost half as much when it was accepted", plan: cheaper, want: accepted.HourlyPrice},
		{reason: "existing nodes cost nothing", plan: nodes, with: planner.Constraints{MaxHourlyPrice: 0.01}, want: accepted.HourlyPrice},
		{
			reason: "over the user's limit today", plan: cheaper, with: planner.Constraints{MaxHourlyPrice: cheaper.HourlyPrice + 1},
			why: "above the limit of",
		},
		{
			reason: "over the administrator's ceiling today", plan: cheaper,
			with: planner.Constraints{Ceiling: planner.Ceiling{HourlyPrice: cheaper.HourlyPrice + 1, Name: "ceiling"}}, why: "above the limit of",
		},
		{
			reason: "forbidden today", plan: accepted,
			with: planner.Constraints{Excluded: []planner.Exclusion{{InstanceType: accepted.InstanceType, Reason: "forbidden"}}}, why: "forbidden",
		},
		{reason: "not sold any more", plan: gone, why: "not a machine type"},
		{reason: "spot is not allowed any more", plan: spot, why: "no longer offered as spot"},
		{
			reason: "spot is still allowed", plan: spot, with: planner.Constraints{CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacitySpot}},
			want: spotPrice(t, p, m, accepted.InstanceType),
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got, why := p.Quote(test.plan, test.with)
			if (why == "") != (test.why == "") || !strings.Contains(why, test.why) {
				t.Fatalf("refused for %q, want %q", why, test.why)
			}
			if test.why == "" && got.HourlyPrice != test.want {
				t.Errorf("%v USD/h, want %v", got.HourlyPrice, test.want)
			}
			if got.HourlyPrice != test.plan.HourlyPrice && len(got.Alternatives) > 0 {
				t.Error("alternatives are compared with the former price")
			}
		})
	}
}

// spotPrice returns the planner's own price of a spot machine.
func spotPrice(t *testing.T, p *planner.Planner, m *model.Model, name string) float64 {
	t.Helper()
	plan, err := p.Plan(planner.Request{Model: m, Constraints: planner.Constraints{
		InstanceType: name, CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacitySpot},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return plan.HourlyPrice
}
