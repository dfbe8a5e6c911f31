// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
)

// startLacking returns a start of a setting with lack GiB less KV cache than the law says.
func startLacking(t *testing.T, s shelf, x setting, lack float64) catalog.Measurement {
	t.Helper()
	run := slower(t, s, x, 1)
	_, d := x.deployed(t, s)
	run.Memory = catalog.MeasuredMemory{
		KVCacheGiB: d.Budget.KVCache - lack, MaxModelLen: x.serving.MaxModelLen, MaxNumSeqs: x.serving.MaxNumSeqs,
		MaxBatchedTokens: x.serving.MaxBatchedTokens, Utilization: x.serving.Utilization,
	}
	return run
}

// A start lowers the KV cache of its own set-up within limits, and never raises it.
func TestMeasuredMemory(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		lack     float64
		change   func(*setting, *catalog.Measurement)
		lowered  float64
		measured bool
	}{
		{"as the law says", 0, func(*setting, *catalog.Measurement) {}, 0, true},
		{"a little less", 0.44, func(*setting, *catalog.Measurement) {}, 0.44, true},
		{"more than the law says teaches no room", -2, func(*setting, *catalog.Measurement) {}, 0, true},
		{"longer sequences lack as much", 0.44, func(x *setting, _ *catalog.Measurement) { x.serving.MaxModelLen *= 2 }, 0.44, true},
		{"a patch release", 0.44, func(_ *setting, m *catalog.Measurement) { m.Version = "0.31.7" }, 0.44, true},
		{"far less is another set-up", 9, func(*setting, *catalog.Measurement) {}, 0, false},
		{"far more is another set-up", -9, func(*setting, *catalog.Measurement) {}, 0, false},
		{"another release", 0.44, func(_ *setting, m *catalog.Measurement) { m.Version = "0.30.0" }, 0, false},
		{"another split", 0.44, func(x *setting, _ *catalog.Measurement) { x.layout.TP = 8 }, 0, false},
		{"another GPU", 0.44, func(_ *setting, m *catalog.Measurement) { m.GPU = "H200-141-SXM" }, 0, false},
		{"another cache", 0.44, func(_ *setting, m *catalog.Measurement) { m.KVType = "fp8" }, 0, false},
		{"without graphs", 0.44, func(x *setting, _ *catalog.Measurement) { x.serving.Eager = true }, 0, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := newShelf(t)
			x := ordinary(t, s)
			run := startLacking(t, s, x, tc.lack)
			tc.change(&x, &run)
			m, d := x.deployed(t, s)
			got := physics.MeasuredMemory(m, d, []catalog.Measurement{run})
			if lowered := d.Budget.KVCache - got.KVCache; math.Abs(lowered-tc.lowered) > 1e-6 || got.Measured != tc.measured {
				t.Errorf("%.3f GiB less, measured %t; want %.3f, %t", lowered, got.Measured, tc.lowered, tc.measured)
			}
			if got.Basis != d.Budget.Basis {
				t.Errorf("the law's basis became %s, which sets the margin", got.Basis)
			}
		})
	}
}

// Noisy and adversarial starts never give a plan more memory than the law, and take a limited part of a GPU.
func TestStartsNeverMakeRoom(t *testing.T) {
	s := newShelf(t)
	random := rand.New(rand.NewPCG(5, 6))
	lowered := 0
	for range 500 {
		x := ordinary(t, s)
		x.layout.TP = 1 << random.IntN(4)
		x.serving.MaxNumSeqs, x.serving.MaxModelLen = 1+random.IntN(1024), 1+random.IntN(100_000)
		var runs []catalog.Measurement
		for range 1 + random.IntN(5) {
			run := startLacking(t, s, x, 3*random.NormFloat64())
			run.Memory.MaxNumSeqs = 1 + random.IntN(1024)
			runs = append(runs, run)
		}
		m, d := x.deployed(t, s)
		law, got := d.Budget, physics.MeasuredMemory(m, d, runs)
		switch less := law.KVCache - got.KVCache; {
		case less < 0, less > 0.08*x.gpu.MemoryGiB, got.KVTokens > law.KVTokens, got.MaxConcurrency > law.MaxConcurrency:
			t.Fatalf("budget %+v, the law's %+v", got, *law)
		case less > 0:
			lowered++
		}
	}
	if lowered < 100 {
		t.Errorf("%d of 500 budgets were lowered: too few to say anything", lowered)
	}
}
