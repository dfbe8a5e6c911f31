// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
)

// lessonOf returns a lesson under the load of a setting that took the given multiple of the law's time.
func lessonOf(t testing.TB, s shelf, x setting, times float64) catalog.Measurement {
	t.Helper()
	out := slower(t, s, x, times)
	out.Name, out.TTFTMillis, out.OutputTokensPerSecond = "", 0, 0
	return out
}

// TestLearnedSpeed: some lessons make a figure slower, and lessons have no other effect.
func TestLearnedSpeed(t *testing.T) {
	type change func(*setting, *catalog.Measurement)
	for name, tc := range map[string]struct {
		reason string
		times  float64
		change change
		want   float64
	}{
		"slower":            {"the engine's time counts", 1.3, func(*setting, *catalog.Measurement) {}, 1.3},
		"half the clients":  {"the law scales the ratio", 1.3, func(x *setting, _ *catalog.Measurement) { x.load.Concurrency /= 2 }, 1.3},
		"a patch release":   {"it is the same engine", 1.3, func(_ *setting, m *catalog.Measurement) { m.Version = "0.31.9" }, 1.3},
		"as fast":           {"nothing is to be changed", 1, func(*setting, *catalog.Measurement) {}, 0},
		"faster":            {"its clients may repeat prompts", 0.8, func(*setting, *catalog.Measurement) {}, 0},
		"incredibly slow":   {"something else is the matter", 1.7, func(*setting, *catalog.Measurement) {}, 0},
		"incredibly fast":   {"it is made up", 0.5, func(*setting, *catalog.Measurement) {}, 0},
		"another GPU":       {"it has other memory", 1.3, func(x *setting, _ *catalog.Measurement) { x.gpu.Name = "H100-80-PCIe" }, 0},
		"another split":     {"sums take another time", 1.3, func(x *setting, _ *catalog.Measurement) { x.layout.TP = 8 }, 0},
		"another release":   {"its fault may be mended", 1.3, func(_ *setting, m *catalog.Measurement) { m.Version = "0.30.0" }, 0},
		"many clients":      {"the law errs differently there", 1.3, func(x *setting, _ *catalog.Measurement) { x.load.Concurrency *= 3 }, 0},
		"longer prompts":    {"the law errs differently there", 1.3, func(x *setting, _ *catalog.Measurement) { x.load.Input *= 3 }, 0},
		"several machines":  {"the network decides", 1.3, func(x *setting, _ *catalog.Measurement) { x.layout.Nodes = 2 }, 0},
		"eager":             {"steps cost more", 1.3, func(x *setting, _ *catalog.Measurement) { x.serving.Eager = true }, 0},
		"another cache":     {"it is read at another rate", 1.3, func(x *setting, m *catalog.Measurement) { x.load.Input, m.InputTokens, m.KVType = 8192, 8192, "fp8" }, 0},
		"a queue":           {"the wait decides", 1.3, func(x *setting, _ *catalog.Measurement) { x.serving.MaxNumSeqs = 8 }, 0},
		"no requests":       {"there is nothing to carry it to", 1.3, func(x *setting, _ *catalog.Measurement) { x.load.Concurrency = 0 }, 0},
		"a missing time":    {"it is no lesson", 1.3, func(_ *setting, m *catalog.Measurement) { m.TPOTMillis = 0 }, 0},
		"a time below zero": {"it is no lesson", 1.3, func(_ *setting, m *catalog.Measurement) { m.TPOTMillis = -1 }, 0},
		"no number":         {"it is no lesson", 1.3, func(_ *setting, m *catalog.Measurement) { m.TPOTMillis = math.NaN() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			x := ordinary(t, s)
			x.load.Open = true
			lesson := lessonOf(t, s, x, tc.times)
			tc.change(&x, &lesson)
			m, d := x.deployed(t, s)
			law := m.Speed(d, x.load)
			got := m.LearnedSpeed(d, x.load, nil, physics.Lessons([]catalog.Measurement{lesson}))
			want := law
			if tc.want > 0 {
				answer := float64(x.load.Output - 1)
				want.TPOT *= tc.want
				want.OutputTokensPerSecond *= (law.TTFT + answer*law.TPOT) / (law.TTFT + answer*want.TPOT)
				want.Slowdown = tc.want
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestMedianLessonCounts: one false lesson among several has little effect, and of two lessons the lower one counts.
func TestMedianLessonCounts(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	x.load.Open = true
	m, d := x.deployed(t, s)
	for _, tc := range []struct {
		reason string
		times  []float64
		want   float64
	}{
		{"one", []float64{1.3}, 1.3},
		{"two", []float64{1.5, 1.2}, 1.2},
		{"a slow liar", []float64{1.2, 1.59, 1.25}, 1.25},
		{"a fast liar", []float64{1.2, 0.63, 1.25}, 1.2},
		{"one beyond belief does not count", []float64{1.2, 9, 1.25}, 1.2},
		{"most are as fast as predicted", []float64{1, 1.5, 1, 0.95}, 0},
	} {
		var lessons []catalog.Measurement
		for _, times := range tc.times {
			lessons = append(lessons, lessonOf(t, s, x, times))
		}
		if got := m.LearnedSpeed(d, x.load, nil, lessons).Slowdown; math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %v times as long, want %v", tc.reason, got, tc.want)
		}
	}
}

// TestLessonsBesideRuns: the slower of a run and a lesson counts, and the basis remains the run's.
func TestLessonsBesideRuns(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	m, d := x.deployed(t, s)
	law := m.Speed(d, x.load)
	for _, tc := range []struct{ run, lesson, want, slowdown float64 }{
		{1.1, 1.3, 1.3, 1.3 / 1.1},
		{1.3, 1.1, 1.3, 0},
		{0.9, 1.2, 1.2, 1.2 / 0.9},
		{0.9, 0.8, 0.9, 0},
	} {
		got := m.LearnedSpeed(d, x.load, []catalog.Measurement{slower(t, s, x, tc.run)}, []catalog.Measurement{lessonOf(t, s, x, tc.lesson)})
		if math.Abs(got.TPOT/law.TPOT-tc.want) > 0.01 || math.Abs(got.Slowdown-tc.slowdown) > 0.01 || got.Basis != v1beta1.BasisMeasured {
			t.Errorf("run %v, lesson %v: %+v, %v of the law", tc.run, tc.lesson, got, got.TPOT/law.TPOT)
		}
	}
}

// TestLessonsOnlySlow: noisy and adversarial lessons make no figure better, and none more than 1.6 times as slow, both
// for a number of requests and for a rate.
func TestLessonsOnlySlow(t *testing.T) {
	s := newShelf(t)
	random := rand.New(rand.NewPCG(11, 12))
	slowed, rated := 0, 0
	for range 2000 {
		x := ordinary(t, s)
		x.layout.TP = 1 << random.IntN(4)
		x.load = physics.Load{Input: 1 + random.IntN(4000), Output: 2 + random.IntN(1000), Concurrency: 1 + random.IntN(64), Open: true}
		if slower(t, s, x, 1).TPOTMillis == 0 {
			continue
		}
		var lessons []catalog.Measurement
		for range 1 + random.IntN(4) {
			lesson := lessonOf(t, s, x, 0.2+2*random.Float64())
			lesson.Concurrency = max(1, int(float64(lesson.Concurrency)*(0.4+2*random.Float64())))
			lessons = append(lessons, lesson)
		}
		m, d := x.deployed(t, s)
		before := m.Speed(d, x.load)
		if rate := before.OutputTokensPerSecond / float64(x.load.Output) * 0.7; random.IntN(3) == 0 && rate > 0 {
			x.load = physics.Load{Input: x.load.Input, Output: x.load.Output, Rate: rate}
			before = m.Speed(d, x.load)
			rated++
		}
		after := m.LearnedSpeed(d, x.load, nil, lessons)
		switch {
		case after.TPOT < before.TPOT, after.TTFT < before.TTFT, after.OutputTokensPerSecond > before.OutputTokensPerSecond,
			after.InFlight < before.InFlight, before.Queues && !after.Queues, after.Basis != before.Basis, math.IsNaN(after.TPOT):
			t.Fatalf("load %+v: %+v, without the lessons %+v", x.load, after, before)
		case after.Slowdown > 1.6*(1+1e-9), after.Slowdown != 0 && after.Slowdown <= 1:
			t.Fatalf("%v times as slow", after.Slowdown)
		case after.Slowdown > 1:
			slowed++
		}
	}
	t.Logf("%d slowed, %d of them or others under a rate", slowed, rated)
	if slowed < 200 || rated < 200 {
		t.Errorf("%d were slowed, %d were under a rate: too few to say anything", slowed, rated)
	}
}
