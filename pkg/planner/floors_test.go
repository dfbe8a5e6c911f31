// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// A predicted time must keep a floor by a margin for its error: an estimate of 97.8 ms does not keep 100 ms.
func TestFloorsHaveMargins(t *testing.T) {
	w := city(t)
	w.SKUs = []sku.SKU{machineOf("Dull", "GPU-1", 1, 2)}
	alone, err := ask(t, w, planner.Request{})
	if err != nil {
		t.Fatal(err)
	}
	tpot := alone.Performance.TPOTMillis // an estimate: the world has no measurements
	runs := []catalog.Measurement{runOf(w, "GPU-1", alone.Performance)}
	for _, tc := range []struct {
		reason   string
		measured bool
		limit    float64
		want     bool
		warned   bool
	}{
		{"an estimate above 0.8 of the limit does not keep it", false, tpot / 0.81, false, false},
		{"just below it does, and the plan says so", false, tpot / 0.79, true, true},
		{"far below nothing needs saying", false, tpot / 0.6, true, false},
		{"a measured figure may use 0.95", true, tpot / 0.94, true, true},
		{"and no more", true, tpot / 0.96, false, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := w
			if tc.measured {
				w.Measurements = runs
			}
			plan, err := ask(t, w, planner.Request{Objectives: planner.Objectives{
				TimePerOutputToken: time.Duration(tc.limit * float64(time.Millisecond)),
			}})
			if got := err == nil; got != tc.want || len(plan.Warnings) > 0 != tc.warned {
				t.Errorf("kept: %t (%v), want %t; warnings %q", got, err, tc.want, plan.Warnings)
			}
			if err == nil && (plan.Performance.Basis == v1beta1.BasisMeasured) != tc.measured {
				t.Errorf("the figure is %s", plan.Performance.Basis)
			}
		})
	}
}

// The error describes the layout nearest to the limit, not the first one.
func TestRefusalIsAboutTheFastestLayout(t *testing.T) {
	w := city(t)
	w.SKUs = []sku.SKU{machineOf("Swifts", "GPU-0", 4, 12)}
	w.SKUs[0].LinkedGPUs = 4
	limited := planner.Objectives{TimePerOutputToken: time.Millisecond}
	_, open := ask(t, w, planner.Request{Objectives: limited})
	_, fastest := ask(t, w, planner.Request{
		Objectives: limited, Constraints: planner.Constraints{Engine: planner.EngineSettings{TensorParallel: 4}},
	})
	if open == nil || fastest == nil {
		t.Fatal("a token in 1 ms is planned")
	}
	if diff := cmp.Diff(fastest.Error(), open.Error()); diff != "" {
		t.Errorf("refusal (-of TP 4 alone +got):\n%s", diff)
	}
}

// runOf returns a benchmark run of the world's first model on one GPU, with the figures of a plan.
func runOf(w world, gpu string, p *planner.Performance) catalog.Measurement {
	a := w.Models[0].Artifacts[0]
	each := p.TTFTMillis + float64(p.OutputTokens-1)*p.TPOTMillis
	return catalog.Measurement{
		Name: "run", Engine: a.Engine, Version: "0.31.0", Model: a.Repo, Quantization: a.Quantization, GPU: gpu, TensorParallel: 1,
		InputTokens: p.InputTokens, OutputTokens: p.OutputTokens, Concurrency: p.Concurrency,
		TTFTMillis: p.TTFTMillis, TPOTMillis: p.TPOTMillis, OutputTokensPerSecond: float64(p.Concurrency*p.OutputTokens) / each * 1e3,
	}
}
