// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"math"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
)

// A run must be this near to a load, as a ratio in either direction. A token of a longer answer takes about the same
// time, so answers may differ more. TestMeasuredRunsCarryOver compares runs at these distances.
const (
	nearInput       = 2
	nearOutput      = 4
	nearConcurrency = 2
)

// A run is ignored if its figures differ from the law's by more than these ratios: its engine had another set-up, or
// its author erred. The law is less exact for the time to first token.
const (
	mostTPOTResidual = 1.6
	mostTTFTResidual = 3
)

// mostCacheShare is a share of the time of a step. If reads of the KV cache take less, the type of the cache hardly
// matters.
const mostCacheShare = 0.1

// MeasuredSpeed is Speed, with the basis Measured if one of the runs supports it. All runs must be of the model's
// architecture and size in its format, under the deployment's engine. The nearest run scales the law: if it took 1.1
// times as long as the law says, the law's figure for the load is multiplied by 1.1. The result is never better than
// the hardware's peak allows.
//
// A run supports a deployment if both have the same GPU, tensor parallelism and number of stages, if their loads per
// replica are near each other, and if a step costs the same in both releases of the engine.
func (m *Model) MeasuredSpeed(d *Deployment, load Load, runs []catalog.Measurement) Pace {
	if load.Rate > 0 {
		return atRate(load, func(closed Load) Pace { return m.MeasuredSpeed(d, closed, runs) })
	}
	pace := m.Speed(d, load)
	run := nearest(m, d, load, runs)
	if run == nil || pace.TPOT == 0 || pace.Queues {
		return pace
	}
	law, reached := m.speedOf(run, d, false)
	if !reached || ratio(run.TPOTMillis, law.TPOT) > mostTPOTResidual || ratio(run.TTFTMillis, law.TTFT) > mostTTFTResidual {
		return pace
	}
	if run.KVType != kvTypeOf(d) && cacheShare(m, d, load) > mostCacheShare {
		return pace
	}
	peak := peakOf(m, d, load)
	before := pace.TTFT + float64(load.Output-1)*pace.TPOT
	pace.TPOT = max(pace.TPOT*run.TPOTMillis/law.TPOT, peak.TPOT)
	pace.TTFT = max(pace.TTFT*run.TTFTMillis/law.TTFT, peak.TTFT)
	// By Little's law, the rate of the same number of requests in flight falls as their time grows.
	pace.OutputTokensPerSecond *= before / (pace.TTFT + float64(load.Output-1)*pace.TPOT)
	pace.Basis = v1beta1.BasisMeasured
	return pace
}

// ratio returns the ratio of two positive numbers, larger to smaller.
func ratio(a, b float64) float64 { return max(a/b, b/a) }

// nearest returns the run at the smallest distance among those that support a deployment; nil if none does.
func nearest(m *Model, d *Deployment, load Load, runs []catalog.Measurement) *catalog.Measurement {
	open, alike := openFor(m, d, load)
	if len(runs) == 0 || !alike {
		return nil
	}
	var best *catalog.Measurement
	least := math.Inf(1)
	for i := range runs {
		run := &runs[i]
		if !sameSetUp(run, d) {
			continue
		}
		distance := distanceOf(run, load, open)
		switch {
		case distance < least:
		case best != nil && distance == least && older(best.Version, run.Version):
		default:
			continue
		}
		best, least = run, distance
	}
	return best
}

// openFor returns the number of open requests of a load on each replica. It returns false if the deployment has
// settings that no run has.
func openFor(m *Model, d *Deployment, load Load) (open float64, alike bool) {
	replicas := max(d.Layout.DP, 1) / d.Layout.ranks()
	open = max(float64(load.Concurrency)/float64(max(replicas, 1)), 1)
	unlike := d.Serving.Eager || m.weights.Adapters.Slots > 0 || d.Layout.Nodes > 1
	return open, !unlike && load.Input >= 1 && load.Output >= 1
}

// sameSetUp reports whether a run and a deployment have the same GPU, layout and links, and releases of the engine with
// equal speed.
func sameSetUp(run *catalog.Measurement, d *Deployment) bool {
	l := &d.Layout
	gpus := max(l.TP, 1) * max(l.PP, 1)
	switch {
	case run.GPU != d.GPU.Name, run.TensorParallel != max(l.TP, 1), run.Stages() != max(l.PP, 1), l.CP > 1:
		return false
	case run.WholeExperts != l.EP, l.EP && l.DP > 1:
		return false
	case gpus > 1 && d.GPU.Link != "" && !isPCIe(d.GPU.Link) && l.LinkedGPUs < gpus:
		return false // in the run, the link connected the GPUs
	}
	until := d.Engine.Speed.Former.Until
	return until == "" || older(run.Version, until) == older(cmp.Or(d.Serving.Version, d.Engine.Version), until)
}

// distanceOf returns the distance of a run's load from another load with some open requests per replica; +Inf if it is
// not near.
func distanceOf(run *catalog.Measurement, load Load, open float64) float64 {
	input := ratio(float64(run.InputTokens), float64(load.Input))
	output := ratio(float64(run.OutputTokens), float64(load.Output))
	concurrency := ratio(float64(run.Concurrency), open)
	if input > nearInput || output > nearOutput || concurrency > nearConcurrency {
		return math.Inf(1)
	}
	return math.Log(input) + math.Log(output)/2 + math.Log(concurrency)
}

// kvTypeOf returns the type of the KV cache; empty for the model's own.
func kvTypeOf(d *Deployment) string {
	if kv := d.Serving.KVType; kv != "auto" && kv != "bfloat16" {
		return kv
	}
	return ""
}

// speedOf returns the law's figures for a run; false if the law says that the run is impossible. open is Load.Open.
func (m *Model) speedOf(run *catalog.Measurement, d *Deployment, open bool) (Pace, bool) {
	s := Serving{
		MaxModelLen: run.InputTokens + run.OutputTokens + 1, Utilization: d.Serving.Utilization, KVType: run.KVType, Version: run.Version,
	}
	l := d.Layout
	l.DP = 1
	// The run had enough memory for its requests, so the law needs no limit.
	budget := Budget{KVCache: math.MaxFloat32, KVTokens: math.MaxInt32, MaxConcurrency: math.MaxInt32}
	pace := m.Speed(
		&Deployment{GPU: d.GPU, Layout: l, Serving: &s, Budget: &budget, Engine: d.Engine},
		Load{Input: run.InputTokens, Output: run.OutputTokens, Concurrency: run.Concurrency, Open: open},
	)
	return pace, pace.TPOT > 0 && !pace.Queues
}

// cacheShare returns the share of a step's time in which a replica reads its KV cache.
func cacheShare(m *Model, d *Deployment, load Load) float64 {
	r, known := m.rooflineOf(d)
	if !known {
		return 1
	}
	r.input, r.output = float64(load.Input), float64(load.Output)
	sequences := max(float64(load.Concurrency)/float64(max(d.Layout.DP, 1)), 1)
	return sequences * r.cached() / r.cache / r.decodeTime(sequences)
}

// cached returns the bytes of a sequence's KV cache that a step reads on each GPU.
func (r *roofline) cached() float64 {
	read := 0.0
	for i := range r.w.mixers {
		read += r.w.mixers[i].read(r.input+r.output/2, r.tp, r.elements)
	}
	return read
}

// peakOf returns the shortest times in ms that bandwidth and peak in the data sheet allow, without any loss in kernels,
// between GPUs or in the engine.
func peakOf(m *Model, d *Deployment, load Load) Pace {
	r, known := m.rooflineOf(d)
	if !known {
		return Pace{}
	}
	fastest := 0.0
	for _, tflops := range d.GPU.PeakTFLOPs {
		fastest = max(fastest, tflops)
	}
	best := rates{bandwidth: d.GPU.BandwidthGBs * giga, compute: fastest * tera}
	r.plain, r.linear, r.experts, r.cache = best, best, best, best.bandwidth
	r.input, r.output = float64(load.Input), float64(load.Output)
	stages := float64(max(d.Layout.PP, 1))
	// Assume one sequence in flight on each replica, because more of them make a step longer.
	step := r.matrices(1, 1) + r.cached()/r.cache
	prompt := r.matrices(r.input, r.input)
	// The roofline has smooth corners, which make a time up to a fifth longer. Undo that.
	return Pace{TPOT: step / smoothCorner * 1e3, TTFT: max(prompt/stages, step) / smoothCorner * 1e3}
}

// smoothCorner is the factor by which the smooth corner of the roofline lengthens a time, if memory and compute take
// equally long.
const smoothCorner = 1.19
