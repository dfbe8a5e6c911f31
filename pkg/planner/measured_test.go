// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// coverage has the publishers whose models have a measured speed in some plan.
type coverage struct{ usual, near map[string]bool }

// measuredClasses are the beginnings of the classes of the most common GPUs in clouds.
func measuredClasses() []string {
	return []string{"L4", "A10", "A100", "L40S", "RTX-PRO-6000", "H100", "H200", "B200"}
}

// classOf returns the measured class of a GPU; empty if it has none.
func classOf(gpu *sku.GPU) string {
	base, _, _ := strings.Cut(gpu.Class, "-")
	for _, class := range measuredClasses() {
		if gpu.Class == class || base == class {
			return class
		}
	}
	return ""
}

// TestMeasuredCoverage prints the models with a measured speed for each GPU: at the usual load, and at the load of a
// published run.
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

// adversarial returns starts of a model on a GPU in every layout, with arbitrary figures.
func adversarial(r *rand.Rand, m *model.Model, gpu *sku.GPU) (runs []catalog.Measurement) {
	for _, tp := range []int{1, 2, 4, 8} {
		for range 3 {
			run := catalog.Measurement{
				Name: fmt.Sprint("run-", len(runs)), Engine: "vllm", Version: "0.31.0", Model: m.HubID, Quantization: m.Artifacts[0].Quantization,
				GPU: gpu.Name, TensorParallel: tp, InputTokens: 1024, OutputTokens: 256, Concurrency: 4, TTFTMillis: 100, TPOTMillis: 10,
				OutputTokensPerSecond: 386,
			}
			run.Memory = catalog.MeasuredMemory{
				KVCacheGiB: gpu.MemoryGiB * r.Float64(), MaxModelLen: 1 + r.IntN(m.Context), MaxNumSeqs: 1 + r.IntN(1024),
				MaxBatchedTokens: 512 + r.IntN(8192), Utilization: 0.1 + 0.9*r.Float64(),
			}
			runs = append(runs, run)
		}
	}
	return runs
}

// TestCalibrationsNeverMakeAModelFit: no calibration file turns "does not fit" into a plan, or gives a plan more KV
// cache.
func TestCalibrationsNeverMakeAModelFit(t *testing.T) {
	c, r := realCatalog(t), rand.New(rand.NewPCG(7, 8))
	refused, lowered := 0, 0
	for i, m := range c.Models() {
		if i%7 != 0 || len(m.Artifacts) == 0 || m.Artifacts[0].Engine != "vllm" {
			continue
		}
		for _, machine := range referenceMachines() {
			s, _ := c.SKU(machine)
			gpu, _ := c.GPU(s.GPU)
			overlaid, err := c.WithMeasurements(adversarial(r, &m, &gpu))
			if err != nil {
				t.Fatal(err)
			}
			request := planner.Request{
				Model: &m, Engine: "vllm", Constraints: planner.Constraints{InstanceType: machine, OneMachine: "test"},
				Objectives: planner.Objectives{MaxModelLen: min(m.Context, 16384), Concurrency: 8},
			}
			before, refusal := planner.New(c, planner.Settings{}).Plan(request)
			after, err := planner.New(overlaid, planner.Settings{}).Plan(request)
			switch {
			case refusal != nil && err == nil:
				t.Errorf("%s on %s: a calibration makes a plan where there was %q", m.Name, machine, refusal)
			case refusal != nil || err != nil:
				refused++
			case before.TensorParallel == after.TensorParallel && before.Memory != nil && after.Memory.KVCache < before.Memory.KVCache:
				lowered++
			case before.TensorParallel == after.TensorParallel && before.Memory != nil && after.MaxNumSeqs == before.MaxNumSeqs &&
				after.MaxBatchedTokens == before.MaxBatchedTokens && after.Memory.KVCache > before.Memory.KVCache:
				t.Errorf("%s on %s: a calibration gives %.2f GiB of KV cache, there were %.2f", m.Name, machine, after.Memory.KVCache, before.Memory.KVCache)
			}
		}
	}
	if refused == 0 || lowered == 0 {
		t.Errorf("%d refusals and %d lowered plans: too few to say anything", refused, lowered)
	}
}

// planIsMeasured reports whether a plan for the machine of a run, in its layout, has a measured speed.
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
