// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
)

// deployed returns the model and the deployment of a setting.
func (x setting) deployed(t testing.TB, s shelf) (*physics.Model, *physics.Deployment) {
	t.Helper()
	m := s.model(t, published{Quantization: x.format, Shape: seventy()})
	budget := physics.Memory(m, &x.gpu, x.layout, &x.serving, &x.engine)
	return m, &physics.Deployment{GPU: &x.gpu, Layout: x.layout, Serving: &x.serving, Budget: &budget, Engine: &x.engine}
}

// slower returns a run of a setting that took the given multiple of the law's time.
func slower(t testing.TB, s shelf, x setting, times float64) catalog.Measurement {
	t.Helper()
	m, d := x.deployed(t, s)
	law := m.Speed(d, x.load)
	return catalog.Measurement{
		Name: "run", Engine: "vllm", Version: x.engine.Version, Model: "org/seventy", Quantization: x.format,
		GPU: x.gpu.Name, TensorParallel: x.layout.TP,
		InputTokens: x.load.Input, OutputTokens: x.load.Output, Concurrency: x.load.Concurrency,
		TTFTMillis: times * law.TTFT, TPOTMillis: times * law.TPOT, OutputTokensPerSecond: law.OutputTokensPerSecond / times,
	}
}

// A deployment under the load of a run has the figures of the run.
func TestMeasuredSpeedEqualsRun(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	run := slower(t, s, x, 1.2)
	m, d := x.deployed(t, s)
	want := physics.Pace{
		TTFT: run.TTFTMillis, TPOT: run.TPOTMillis, OutputTokensPerSecond: run.OutputTokensPerSecond, Basis: v1beta1.BasisMeasured,
	}
	if diff := cmp.Diff(want, m.MeasuredSpeed(d, x.load, []catalog.Measurement{run}), cmpopts.EquateApprox(0.005, 0)); diff != "" {
		t.Errorf("pace (-want +got):\n%s", diff)
	}
}

// A run supports some deployments and not others.
func TestMeasuredBasis(t *testing.T) {
	const yes, no = v1beta1.BasisMeasured, v1beta1.BasisEstimated
	type change func(*setting, *catalog.Measurement)
	for name, tc := range map[string]struct {
		reason string
		change change
		want   v1beta1.Basis
	}{
		"the same":         {"it is the run", func(*setting, *catalog.Measurement) {}, yes},
		"replicas":         {"each has the run's load", func(x *setting, _ *catalog.Measurement) { x.layout.DP, x.load.Concurrency = 2, 64 }, yes},
		"shorter answers":  {"a token takes as long", func(x *setting, _ *catalog.Measurement) { x.load.Output /= 4 }, yes},
		"half the clients": {"a step is hardly shorter", func(x *setting, _ *catalog.Measurement) { x.load.Concurrency /= 2 }, yes},
		"little cache":     {"8 bits of a small cache change little", func(x *setting, m *catalog.Measurement) { m.KVType = "fp8"; x.load.Concurrency = 16 }, yes},
		"earlier release":  {"a step costs as much", func(_ *setting, m *catalog.Measurement) { m.Version = "0.19.0" }, yes},

		"another GPU":       {"it has other memory", func(x *setting, _ *catalog.Measurement) { x.gpu.Name = "H100-80-PCIe" }, no},
		"another split":     {"GPUs add up over another number", func(x *setting, _ *catalog.Measurement) { x.layout.TP = 8 }, no},
		"stages":            {"they hand on", func(x *setting, _ *catalog.Measurement) { x.layout.PP = 2 }, no},
		"several machines":  {"the network was not measured", func(x *setting, _ *catalog.Measurement) { x.layout.Nodes = 2 }, no},
		"no link":           {"the run's GPUs had one", func(x *setting, _ *catalog.Measurement) { x.layout.LinkedGPUs = 2 }, no},
		"whole experts":     {"they are exchanged", func(_ *setting, m *catalog.Measurement) { m.WholeExperts = true }, no},
		"context parallel":  {"the cache lies elsewhere", func(x *setting, _ *catalog.Measurement) { x.layout.CP = 2 }, no},
		"eager":             {"steps cost more", func(x *setting, _ *catalog.Measurement) { x.serving.Eager = true }, no},
		"many clients":      {"a step is longer", func(x *setting, _ *catalog.Measurement) { x.load.Concurrency *= 3 }, no},
		"one client":        {"a step is shorter", func(x *setting, _ *catalog.Measurement) { x.load.Concurrency = 1 }, no},
		"long prompts":      {"they delay the others", func(x *setting, _ *catalog.Measurement) { x.load.Input *= 3 }, no},
		"long answers":      {"the cache grows", func(x *setting, _ *catalog.Measurement) { x.load.Output *= 5 }, no},
		"a former release":  {"a step cost more", func(_ *setting, m *catalog.Measurement) { m.Version = "0.13.0" }, no},
		"incredibly fast":   {"its author erred", func(_ *setting, m *catalog.Measurement) { m.TPOTMillis /= 2 }, no},
		"incredibly slow":   {"its author erred", func(_ *setting, m *catalog.Measurement) { m.TPOTMillis *= 2 }, no},
		"a queue":           {"the wait decides", func(x *setting, _ *catalog.Measurement) { x.serving.MaxNumSeqs = 8 }, no},
		"replicas of a run": {"each has a part of the load", func(x *setting, _ *catalog.Measurement) { x.layout.DP = 4 }, no},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			x := ordinary(t, s)
			run := slower(t, s, x, 1.1)
			tc.change(&x, &run)
			m, d := x.deployed(t, s)
			got := m.MeasuredSpeed(d, x.load, []catalog.Measurement{run})
			if got.Basis != tc.want || got.TPOT == 0 {
				t.Errorf("Basis = %v, want %v: %s; %+v", got.Basis, tc.want, tc.reason, got)
			}
			if law := m.Speed(d, x.load); tc.want == no && got != law {
				t.Errorf("pace = %+v, want the law's %+v", got, law)
			}
		})
	}
}

// Runs on cards that only PCIe connects support plans for such cards.
func TestRunsOfPCIeCardsCount(t *testing.T) {
	s := newShelf(t)
	for _, tc := range []struct {
		gpu    string
		linked int
		want   v1beta1.Basis
		reason string
	}{
		{"L40S", 0, v1beta1.BasisMeasured, "each L40S of a machine is on PCIe 4"},
		{"RTX-PRO-6000", 0, v1beta1.BasisMeasured, "each RTX PRO 6000 of a machine is on PCIe 5"},
		{"A100-80-SXM", 0, v1beta1.BasisEstimated, "the run's GPUs had NVLink, these do not"},
		{"A100-80-SXM", 8, v1beta1.BasisMeasured, "both have NVLink"},
	} {
		gpu, known := s.catalog.GPU(tc.gpu)
		if !known {
			t.Fatalf("there is no GPU %q", tc.gpu)
		}
		x := ordinary(t, s)
		x.gpu, x.layout.LinkedGPUs, x.kv = gpu, tc.linked, 30
		run := slower(t, s, x, 1.1)
		m, d := x.deployed(t, s)
		if got := m.MeasuredSpeed(d, x.load, []catalog.Measurement{run}); got.Basis != tc.want || got.TPOT == 0 {
			t.Errorf("%s with %d linked: basis %v, want %v: %s; %+v", tc.gpu, tc.linked, got.Basis, tc.want, tc.reason, got)
		}
	}
}

// The run with the nearest load counts. Of two runs with the same load, the run of the later release counts.
func TestNearestRunCounts(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	near, far := slower(t, s, x, 1.2), slower(t, s, x, 1.4)
	far.Concurrency *= 2
	old := near
	old.Version, old.TPOTMillis = "0.19.0", 1.3*near.TPOTMillis
	m, d := x.deployed(t, s)
	for _, runs := range [][]catalog.Measurement{{near, far}, {far, near}, {old, near}, {near, old}} {
		if got := m.MeasuredSpeed(d, x.load, runs).TPOT; math.Abs(got/near.TPOTMillis-1) > 0.01 {
			t.Errorf("a token takes %.2f ms, want %.2f: runs %+v", got, near.TPOTMillis, runs)
		}
	}
}

// Noisy and adversarial runs make no figure better than the data sheet allows, and give no figure far from the law the
// basis Measured.
func TestRunsStayWithinTheHardware(t *testing.T) {
	s := newShelf(t)
	random := rand.New(rand.NewPCG(3, 4))
	supported := 0
	for range 4000 {
		x := ordinary(t, s)
		x.layout.TP = 1 << random.IntN(4)
		x.load = physics.Load{Input: 1 + random.IntN(4000), Output: 2 + random.IntN(1000), Concurrency: 1 + random.IntN(128), Open: random.IntN(2) == 0}
		run := slower(t, s, x, 1)
		if run.TPOTMillis == 0 {
			continue
		}
		run.TPOTMillis *= math.Exp(random.NormFloat64())
		run.TTFTMillis *= math.Exp(2 * random.NormFloat64())
		m, d := x.deployed(t, s)
		law, got := m.Speed(d, x.load), m.MeasuredSpeed(d, x.load, []catalog.Measurement{run})
		if got.Basis != v1beta1.BasisMeasured {
			if got != law {
				t.Fatalf("an estimate changed: %+v, the law's is %+v", got, law)
			}
			continue
		}
		supported++
		// A step reads a GPU's part of the weights at least once.
		floor := m.WeightBytes(x.layout) / (x.gpu.BandwidthGBs * 1e9) * 1e3 / 1.19 * 0.9
		switch {
		case got.TPOT < floor, got.TPOT < law.TPOT/1.7, got.TPOT > law.TPOT*1.7:
			t.Fatalf("a token takes %.2f ms, by the law %.2f, and reading the weights %.2f: %+v", got.TPOT, law.TPOT, floor, run)
		case got.TTFT < law.TTFT/3.5, got.TTFT > law.TTFT*3.5, math.IsNaN(got.TTFT), got.OutputTokensPerSecond <= 0:
			t.Fatalf("pace %+v, by the law %+v", got, law)
		}
	}
	if supported < 300 {
		t.Errorf("%d runs support a plan: too few to say anything", supported)
	}
}

// Each run of a set-up predicts the other runs under near loads. These predictions are close to the runs, and closer
// than the law is to rows outside its fit.
func TestMeasuredRunsCarryOver(t *testing.T) {
	groups := map[string][]*bench{}
	rows := benches(t)
	_, out := splitRows(rows)
	for _, b := range rows {
		if run, ok := b.supporting(); ok {
			key := fmt.Sprint(run.GPU, run.Model, run.Quantization, run.TensorParallel, run.WholeExperts, run.KVType)
			groups[key] = append(groups[key], b)
		}
	}
	var carried, law, carriedOut, lawOut errs
	for _, rows := range groups {
		for _, from := range rows {
			run, _ := from.supporting()
			for _, to := range rows {
				if from == to {
					continue
				}
				p := to.model.MeasuredSpeed(&to.deployment, to.load, []catalog.Measurement{run})
				if p.Basis == v1beta1.BasisMeasured {
					carried = append(carried, p.TPOT/to.tpot-1)
					law = append(law, to.pace().TPOT/to.tpot-1)
					if slices.Contains(out, to) {
						carriedOut = append(carriedOut, p.TPOT/to.tpot-1)
						lawOut = append(lawOut, to.pace().TPOT/to.tpot-1)
					}
				}
			}
		}
	}
	for _, of := range []struct {
		name         string
		carried, law errs
	}{{"all", carried, law}, {"kept out", carriedOut, lawOut}} {
		t.Logf("figure: measured TPOT, %d pairs of runs near one another, %s: median error %.1f %%, 90th percentile %.1f %%; the law's alone %.1f %% and %.1f %%",
			len(of.carried), of.name, 100*of.carried.sizes().quantile(0.5), 100*of.carried.sizes().quantile(0.9),
			100*of.law.sizes().quantile(0.5), 100*of.law.sizes().quantile(0.9))
	}
	if got := carried.sizes().quantile(0.5); len(carried) < 20 || !(got <= 0.05) {
		t.Errorf("%d pairs have a median error of %.1f %%, want at most 5", len(carried), 100*got)
	}
	if got, most := carriedOut.sizes().quantile(0.5), lawOut.sizes().quantile(0.5); len(carriedOut) < 10 || !(got < most) {
		t.Errorf("%d pairs that were kept out have a median error of %.1f %%, want less than the law's %.1f %%", len(carriedOut), 100*got, 100*most)
	}
}
