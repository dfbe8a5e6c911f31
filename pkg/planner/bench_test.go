// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"testing"

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
