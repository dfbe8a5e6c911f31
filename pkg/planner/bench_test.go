// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/planner"
)

// BenchmarkPlan plans one model over all machine types of all clouds: one that fits many machines, and
// one that fits none, for which the planner looks for a way out too.
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

// BenchmarkPlanCatalogue plans every model of the catalogue over all machine types of all clouds, and
// prints what the slowest of them takes.
func BenchmarkPlanCatalogue(b *testing.B) {
	c := realCatalog(b)
	p, models := planner.New(c, planner.Settings{}), c.Models()
	slowest, total := time.Duration(0), time.Duration(0)
	for b.Loop() {
		for i := range models {
			began := time.Now()
			if _, err := p.Plan(planner.Request{Model: &models[i]}); err != nil {
				b.Fatal(err)
			}
			took := time.Since(began)
			slowest, total = max(slowest, took), total+took
		}
	}
	b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N*len(models)), "ms/model")
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms-slowest")
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
	t.Logf("at most %d bytes, for %s", worst, which)
	if worst > most {
		t.Errorf("planning %s allocates %d bytes, at most %d are allowed", which, worst, most)
	}
}
