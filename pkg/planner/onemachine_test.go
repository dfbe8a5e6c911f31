// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/planner"
)

// TestModelsOnOneMachineOnly: a model that fits one machine is planned, and the error for a larger one has the reason.
func TestModelsOnOneMachineOnly(t *testing.T) {
	const why = "the cluster does not enforce NetworkPolicies"
	c := realCatalog(t)
	for _, tc := range []struct {
		reason, model string
		fits          bool
	}{
		{"a small model", "phi-4", true},
		{"one that no machine holds", "llama-3.1-405b-instruct", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m, err := c.ResolveModel(tc.model)
			if err != nil {
				t.Fatal(err)
			}
			request := planner.Request{Model: &m, Constraints: planner.Constraints{
				OneMachine: why, InstanceType: map[bool]string{false: "Standard_ND96amsr_A100_v4"}[tc.fits],
			}}
			plan, err := planner.New(c, planner.Settings{Clouds: []string{"azure"}}).Plan(request)
			if tc.fits && (err != nil || plan.Nodes != 1) {
				t.Errorf("%d machines, error %v", plan.Nodes, err)
			}
			var infeasible *planner.InfeasibleError
			if !tc.fits && (!errors.As(err, &infeasible) || !strings.Contains(infeasible.Message, why)) {
				t.Errorf("%d machines, error %v; want one that says %q", plan.Nodes, err, why)
			}
		})
	}
	t.Run("a plan that was accepted before", func(t *testing.T) {
		p := planner.New(c, planner.Settings{Clouds: []string{"azure"}})
		accepted := planner.Plan{Engine: "vllm", InstanceType: "Standard_ND96isr_H100_v5", Nodes: 2, CapacityType: "on-demand"}
		if _, refused := p.Quote(accepted, planner.Constraints{OneMachine: why}); refused != why {
			t.Errorf("Quote refuses with %q, want %q", refused, why)
		}
		accepted.Engine = "" // of a template
		if _, refused := p.Quote(accepted, planner.Constraints{OneMachine: why}); refused == why {
			t.Error("machines of a template are refused")
		}
	})
}
