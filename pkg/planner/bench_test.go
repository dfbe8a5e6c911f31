// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/planner"
)

// BenchmarkPlan plans over all machine types of all clouds: one model fits many machines, and the other fits none, so
// the planner also searches for a remedy.
func BenchmarkPlan(b *testing.B) {
	c := realCatalog(b)
	p := planner.New(c, planner.Settings{})
	m, ok := c.Model("qwen2.5-coder-32b-instruct")
	if !ok {
		b.Fatal("the model is missing")
	}
	for _, bench := range []struct {
		name       string
		objectives planner.Objectives
	}{
		{name: "fits"},
		{name: "fits none", objectives: planner.Objectives{Concurrency: 1_000_000}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := p.Plan(planner.Request{Model: &m, Objectives: bench.objectives})
				if (err == nil) != (bench.objectives.Concurrency == 0) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPlanCatalogue plans every model of the catalogue over all machine types of all clouds, and prints the time
// of the slowest model. The fastest run of each model counts, because other processes use the machine.
func BenchmarkPlanCatalogue(b *testing.B) {
	c := realCatalog(b)
	p, models := planner.New(c, planner.Settings{}), c.Models()
	total, fastest := time.Duration(0), make([]time.Duration, len(models))
	for b.Loop() {
		for i := range models {
			began := time.Now()
			if _, err := p.Plan(planner.Request{Model: &models[i]}); err != nil {
				b.Fatal(err)
			}
			took := time.Since(began)
			if total += took; fastest[i] == 0 || took < fastest[i] {
				fastest[i] = took
			}
		}
	}
	slowest := slices.Max(fastest)
	b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N*len(models)), "ms/model")
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest")
	b.Logf("figure: planning a model over all %d machine types takes %.1f ms, the slowest %.1f ms (at most 10)", len(c.SKUs()),
		float64(total.Microseconds())/1000/float64(b.N*len(models)), float64(slowest.Microseconds())/1000)
}

// No model's plan allocates more than 2 MB.
func TestPlansAllocateLittle(t *testing.T) {
	const most = 2 << 20
	c := realCatalog(t)
	p := planner.New(c, planner.Settings{})
	worst, which := uint64(0), ""
	for _, m := range c.Models() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := p.Plan(planner.Request{Model: &m}); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > worst {
			worst, which = allocated, m.Name
		}
	}
	t.Logf("figure: planning a model over all machine types allocates %.2f MB at most (2), for %s", float64(worst)/1e6, which)
	if worst > most {
		t.Errorf("planning %s allocates %d bytes, at most %d are allowed", which, worst, most)
	}
}
