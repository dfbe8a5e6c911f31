// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// coverage is the publishers for whose models some plan has a measured speed.
type coverage struct{ usual, near map[string]bool }

// measuredClasses are the GPUs that clouds sell most, by the beginning of their classes.
func measuredClasses() []string {
	return []string{"L4", "A10", "A100", "L40S", "RTX-PRO-6000", "H100", "H200", "B200"}
}

// classOf returns the measured class of a GPU; empty if it is of none.
func classOf(gpu *sku.GPU) string {
	base, _, _ := strings.Cut(gpu.Class, "-")
	for _, class := range measuredClasses() {
		if gpu.Class == class || base == class {
			return class
		}
	}
	return ""
}

// TestMeasuredCoverage prints which models have a measured speed on which GPUs: at the usual load, and at the load of
// a published run.
func TestMeasuredCoverage(t *testing.T) {
	c := realCatalog(t)
	p := planner.New(c, planner.Settings{})
	covered, publishers := map[string]coverage{}, map[string]bool{}
	for _, class := range measuredClasses() {
		covered[class] = coverage{usual: map[string]bool{}, near: map[string]bool{}}
	}
	for _, m := range c.Models() {
		publisher, _, _ := strings.Cut(m.HubID, "/")
		publishers[publisher] = true
		for i := range m.Artifacts {
			for _, run := range c.Measurements(&m, &m.Artifacts[i]) {
				gpu, _ := c.GPU(run.GPU)
				class := classOf(&gpu)
				if class == "" {
					continue
				}
				near := planner.Objectives{InputTokens: run.InputTokens, OutputTokens: run.OutputTokens, Concurrency: run.Concurrency}
				if planIsMeasured(c, p, &m, &run, near) {
					covered[class].near[publisher] = true
				}
				if planIsMeasured(c, p, &m, &run, planner.Objectives{}) {
					covered[class].usual[publisher] = true
				}
			}
		}
	}
	usual := 0
	for _, class := range measuredClasses() {
		usual += len(covered[class].usual)
		t.Logf("figure: measured speeds on %s, of %d publishers: %d at the usual load (%s), %d near a run (%s)", class, len(publishers),
			len(covered[class].usual), names(covered[class].usual), len(covered[class].near), names(covered[class].near))
	}
	if usual < 6 {
		t.Errorf("%d pairs of a publisher and a GPU have a measured speed at the usual load, want at least 6", usual)
	}
}

// planIsMeasured plans for the machines of a run, in its layout.
func planIsMeasured(c *catalog.Catalog, p *planner.Planner, m *model.Model, run *catalog.Measurement, o planner.Objectives) bool {
	for _, s := range c.SKUs() {
		if s.GPU != run.GPU || s.GPUs < run.TensorParallel || s.Unusable != "" {
			continue
		}
		plan, err := p.Plan(planner.Request{Model: m, Engine: run.Engine, Objectives: o, Constraints: planner.Constraints{
			InstanceType: s.Name, AllowedQuantizations: []string{run.Quantization},
			Engine: planner.EngineSettings{TensorParallel: run.TensorParallel, PipelineParallel: run.Stages(), DataParallel: 1},
		}})
		if err == nil && plan.Performance != nil && plan.Performance.Basis == v1beta1.BasisMeasured {
			return true
		}
	}
	return false
}

func names(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }
