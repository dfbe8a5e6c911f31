// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"cmp"
	"runtime"
	"slices"
	"syscall"
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

// BenchmarkPlanCatalogue plans every model of the catalogue over all machine types of all clouds, and prints the time of
// the slowest model. The fastest run of each model counts, because other processes use the machine. The processor time
// includes the garbage collector's, on all cores.
func BenchmarkPlanCatalogue(b *testing.B) {
	c := realCatalog(b)
	p, models := planner.New(c, planner.Settings{}), c.Models()
	least := make([]took, len(models))
	total := took{}
	for b.Loop() {
		for i := range models {
			began := now(b)
			if _, err := p.Plan(planner.Request{Model: &models[i]}); err != nil {
				b.Fatal(err)
			}
			t := now(b).since(began)
			total.wall, total.processor = total.wall+t.wall, total.processor+t.processor
			least[i].keepLeast(t)
		}
	}
	byProcessor := func(a, b took) int { return cmp.Compare(a.processor, b.processor) }
	byWall := func(a, b took) int { return cmp.Compare(a.wall, b.wall) }
	worst := slices.MaxFunc(least, byProcessor)
	which := models[slices.Index(least, worst)].Name
	slowest := slices.MaxFunc(least, byWall)
	plans := float64(b.N * len(models))
	b.ReportMetric(millis(total.processor)/plans, "cpu-ms/model")
	b.ReportMetric(millis(worst.processor), "cpu-ms-slowest")
	b.ReportMetric(millis(total.wall)/plans, "ms/model")
	b.ReportMetric(millis(slowest.wall), "ms-slowest")
	b.Logf("figure: planning a model over all %d machine types takes %.1f ms of processor time (%.1f ms in all), the slowest, %s, "+
		"%.1f ms (at most 10; %.1f ms in all)", len(c.SKUs()), millis(total.processor)/plans, millis(total.wall)/plans, which,
		millis(worst.processor), millis(slowest.wall))
}

// took is a time on the clock, and of the processor on all threads of this process.
type took struct{ wall, processor time.Duration }

func (t *took) keepLeast(other took) {
	if t.wall == 0 || other.wall < t.wall {
		t.wall = other.wall
	}
	if t.processor == 0 || other.processor < t.processor {
		t.processor = other.processor
	}
}

// moment is a reading of both clocks.
type moment struct {
	wall      time.Time
	processor time.Duration
}

func now(t testing.TB) moment {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return moment{time.Now(), time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}
}

func (m moment) since(began moment) took {
	return took{m.wall.Sub(began.wall), m.processor - began.processor}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

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
