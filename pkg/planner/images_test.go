// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Qwen3.5-9B does not start on a GPU of 24 GB with default settings: the profile run encodes the largest image, and
// that takes all memory beside the weights.
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
		media           physics.Media
		fits            bool
	}{
		{"an image takes what is left", "Standard_NV36ads_A10_v5", physics.Media{}, false},
		{"so does one image", "Standard_NV36ads_A10_v5", physics.Media{Images: 1, NoVideos: true}, false},
		{"small images fit", "Standard_NV36ads_A10_v5", physics.Media{Images: 1, Width: 1024, Height: 1024}, true},
		{"text alone fits", "Standard_NV36ads_A10_v5", physics.Media{TextOnly: true}, true},
		{"limits of zero leave text alone", "Standard_NV36ads_A10_v5", physics.Media{NoImages: true, NoVideos: true}, true},
		{"twice the memory does", "g6e.xlarge", physics.Media{}, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			p := planner.New(c, planner.Settings{})
			plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{
				InstanceType: tc.machine, MaxNodes: 1, Engine: planner.EngineSettings{Media: tc.media},
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

// A plan that holds the usual target after all is not marked as lowered.
func TestPlanThatHoldsTheTargetIsNotLowered(t *testing.T) {
	p := planner.New(realCatalog(t), planner.Settings{Clouds: []string{"aws"}})
	m, err := realCatalog(t).ResolveModel("qwen3.5-9b")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{
		Engine: planner.EngineSettings{Media: physics.Media{TextOnly: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	says := slices.ContainsFunc(plan.Advice, func(a string) bool { return strings.Contains(a, "holds 8192 tokens × 4") })
	if plan.MaxModelLen < 8192 || plan.Concurrency < 4 || says {
		t.Errorf("%s holds %d × %d, advice %q", plan.Summary(), plan.MaxModelLen, plan.Concurrency, plan.Advice)
	}
}
