// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"testing"

	"github.com/modelberth/modelberth/pkg/planner"
)

// Qwen3.5-9B does not start on a GPU of 24 GB as it is: the profile run encodes the largest image, which takes
// what the weights leave.
func TestEncodersTakeMemory(t *testing.T) {
	c, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.ResolveModel("Qwen/Qwen3.5-9B")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, machine string
		text, fits      bool
	}{
		{"an image takes what is left", "Standard_NV36ads_A10_v5", false, false},
		{"text alone fits", "Standard_NV36ads_A10_v5", true, true},
		{"twice the memory does", "g6e.xlarge", false, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			p := planner.New(c, planner.Settings{})
			plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{
				InstanceType: tc.machine, MaxNodes: 1, Engine: planner.EngineSettings{TextOnly: tc.text},
			}})
			if infeasible := (*planner.InfeasibleError)(nil); err != nil && !errors.As(err, &infeasible) {
				t.Fatal(err)
			}
			if fits := err == nil; fits != tc.fits {
				t.Errorf("fits: %v, want %v (%+v, %v)", fits, tc.fits, plan.Memory, err)
			}
		})
	}
}
