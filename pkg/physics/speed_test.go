// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// setting is a deployment under a load, for tests to change.
type setting struct {
	format string
	gpu    sku.GPU
	layout physics.Layout
	// serving has the engine's settings. kv is the KV cache of each GPU in GiB; 0 means the law's.
	serving physics.Serving
	kv      float64
	load    physics.Load
	engine  catalog.Engine
}

// seventy returns the shape of a dense model with 70 billion parameters.
func seventy() model.Shape {
	return model.Shape{Layers: 80, Hidden: 8192, Intermediate: 28672, Heads: 64, KVHeads: 8, HeadDim: 128, Vocab: 128256}
}

// ordinary returns a model in 8 bits on four H100 in one machine, with memory for the load.
func ordinary(t *testing.T, s shelf) setting {
	t.Helper()
	gpu, known := s.catalog.GPU("H100-80-SXM")
	if !known {
		t.Fatal("there is no H100")
	}
	return setting{
		format: "fp8-channel", gpu: gpu, layout: physics.Layout{TP: 4, PP: 1, DP: 1, Nodes: 1, LinkedGPUs: 8, NetworkGBs: 50},
		serving: physics.Serving{MaxModelLen: 4096, MaxNumSeqs: 256, MaxBatchedTokens: 8192, Utilization: 0.92},
		load:    physics.Load{Input: 1000, Output: 500, Concurrency: 32}, engine: *s.vllm(t),
	}
}

func (x setting) pace(t *testing.T, s shelf, shape model.Shape) physics.Pace {
	t.Helper()
	m := s.model(t, published{Quantization: x.format, Shape: shape})
	budget := physics.Memory(m, &x.gpu, x.layout, &x.serving, &x.engine)
	if x.engine.Split == catalog.SplitLayers {
		budget = m.LayerSplit(x.gpu.MemoryGiB, x.layout.PP, x.serving.MaxModelLen, x.serving.MaxNumSeqs, &x.engine.Memory)
	}
	if x.kv != 0 {
		budget.KVCache = x.kv
		budget.KVTokens = int(x.kv * gib / m.KVBytesPerToken(x.layout, x.serving.KVType))
	}
	d := physics.Deployment{GPU: &x.gpu, Layout: x.layout, Serving: &x.serving, Budget: &budget, Engine: &x.engine}
	return m.Speed(&d, x.load)
}

// Each change makes a deployment slower or faster, or leaves its speed.
func TestSpeedFactors(t *testing.T) {
	const faster, same, slower = -1, 0, 1
	for name, tc := range map[string]struct {
		reason string
		change func(*setting)
		tpot   int
		ttft   int
		tokens int
	}{
		"more bandwidth": {
			reason: "weights and KV cache are read faster",
			change: func(x *setting) { x.gpu.BandwidthGBs *= 1.4 },
			tpot:   faster, ttft: faster, tokens: faster,
		},
		"more GPUs, joined": {
			reason: "each reads a smaller part, and sums are cheap over NVLink",
			change: func(x *setting) { x.layout.TP = 8 },
			tpot:   faster, ttft: faster, tokens: faster,
		},
		"the link joins pairs only": {
			reason: "sums cross PCIe",
			change: func(x *setting) { x.layout.LinkedGPUs = 2 },
			tpot:   slower, ttft: slower, tokens: slower,
		},
		"over two machines": {
			reason: "sums cross the network",
			change: func(x *setting) { x.layout.Nodes = 2 },
			tpot:   slower, ttft: slower, tokens: slower,
		},
		"16 bits": {
			reason: "twice the weights are read",
			change: func(x *setting) { x.format = "bf16" },
			tpot:   slower, ttft: slower, tokens: slower,
		},
		"a KV cache of 8 bits": {
			reason: "half the KV cache is read",
			change: func(x *setting) { x.serving.KVType = "fp8" },
			tpot:   faster, ttft: faster, tokens: faster,
		},
		"more sequences": {
			reason: "a step takes longer and yields more",
			change: func(x *setting) { x.load.Concurrency *= 2 },
			tpot:   slower, ttft: slower, tokens: faster,
		},
		"longer prompts": {
			reason: "they are computed among the tokens",
			change: func(x *setting) { x.load.Input *= 3 },
			tpot:   slower, ttft: slower, tokens: slower,
		},
		"two replicas": {
			reason: "each has half of the sequences",
			change: func(x *setting) { x.layout.DP = 2 },
			tpot:   faster, ttft: faster, tokens: faster,
		},
		"stages instead of ranks": {
			reason: "a token passes whole layers one after another, and stages wait",
			change: func(x *setting) { x.layout.TP, x.layout.PP = 2, 2 },
			tpot:   slower, ttft: slower, tokens: slower,
		},
		"eager": {
			reason: "every kernel is launched by the CPU",
			change: func(x *setting) { x.serving.Eager = true },
			tpot:   slower, ttft: slower, tokens: slower,
		},
		"no 8-bit arithmetic": {
			reason: "weights are decompressed: read as fast, multiplied in 16 bits",
			change: func(x *setting) { x.gpu.PeakTFLOPs = map[string]float64{"bf16": 989, "fp16": 989} },
			tpot:   slower, ttft: slower, tokens: slower,
		},
		"another name": {
			reason: "nothing depends on what a GPU is called",
			change: func(x *setting) { x.gpu.Name = "another" },
			tpot:   same, ttft: same, tokens: same,
		},
		"a second replica for nobody": {
			reason: "one request keeps one replica busy",
			change: func(x *setting) { x.layout.DP, x.load.Concurrency = 32, 32 },
			tpot:   faster, ttft: faster, tokens: faster,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			x := ordinary(t, s)
			before := x.pace(t, s, seventy())
			tc.change(&x)
			after := x.pace(t, s, seventy())
			for figure, was := range map[string]struct {
				before, after float64
				want          int
			}{
				"TPOT": {before.TPOT, after.TPOT, tc.tpot}, "TTFT": {before.TTFT, after.TTFT, tc.ttft},
				"tokens/s": {after.OutputTokensPerSecond, before.OutputTokensPerSecond, tc.tokens},
			} {
				got := same
				switch {
				case was.after > was.before:
					got = slower
				case was.after < was.before:
					got = faster
				}
				if got != was.want {
					t.Errorf("%s: %.4f and %.4f, want %+d: %s", figure, was.before, was.after, was.want, tc.reason)
				}
			}
		})
	}
}

func TestQueues(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*setting)
		queues bool
	}{
		"room":                      {"the KV cache holds all", func(*setting) {}, false},
		"more than max-num-seqs":    {"the engine runs no more than it is told to", func(x *setting) { x.serving.MaxNumSeqs = 31 }, true},
		"just max-num-seqs":         {"all run", func(x *setting) { x.serving.MaxNumSeqs = 32 }, false},
		"a small KV cache":          {"32 x 1500 tokens of 80 KiB do not fit 1 GiB", func(x *setting) { x.kv = 1 }, true},
		"a KV cache for the halves": {"32 x 1250 tokens fit 3.4 GiB, 32 x 1500 do not", func(x *setting) { x.kv = 3.4 }, true},
		"no KV cache":               {"not one sequence fits", func(x *setting) { x.kv = -1 }, true},
		"replicas share":            {"each has 16", func(x *setting) { x.serving.MaxNumSeqs, x.layout.DP = 16, 2 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			x := ordinary(t, s)
			tc.change(&x)
			if got := x.pace(t, s, seventy()); got.Queues != tc.queues {
				t.Errorf("Queues = %v, want %v: %s; %+v", got.Queues, tc.queues, tc.reason, got)
			}
		})
	}
}

// Requests wait for room before their first token.
func TestQueuesWait(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	roomy := x.pace(t, s, seventy())
	x.serving.MaxNumSeqs = 8
	tight := x.pace(t, s, seventy())
	if tight.TTFT < 5*roomy.TTFT || tight.OutputTokensPerSecond > roomy.OutputTokensPerSecond {
		t.Errorf("eight at a time give %+v, all at once %+v", tight, roomy)
	}
	// By Little's law, all open requests take turns.
	turn := (tight.TTFT + 500*tight.TPOT) / 1e3
	if open := tight.OutputTokensPerSecond / 500 * turn; math.Abs(open-32) > 0.1 {
		t.Errorf("%.2f requests are open, want 32", open)
	}
}

// A GPU without known peaks gets no prediction.
func TestUnknownHardwareHasNoPace(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	x.gpu.PeakTFLOPs = nil
	if got := x.pace(t, s, seventy()); got != (physics.Pace{Basis: v1beta1.BasisEstimated}) {
		t.Errorf("pace = %+v", got)
	}
}

// An engine that splits by layers computes a token on one GPU after another. A second GPU brings memory but no speed.
func TestLayersOneAfterAnother(t *testing.T) {
	s := newShelf(t)
	engine, known := s.catalog.Engine("llamacpp")
	if !known {
		t.Fatal("there is no engine llamacpp")
	}
	x := ordinary(t, s)
	x.engine, x.format = engine, "f16"
	x.layout = physics.Layout{TP: 1, PP: 1, DP: 1, Nodes: 1}
	x.serving = physics.Serving{MaxModelLen: 4096, MaxNumSeqs: 4}
	x.load = physics.Load{Input: 500, Output: 200, Concurrency: 4}
	small := model.Shape{Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256}
	one := x.pace(t, s, small)
	x.layout.PP = 2
	two := x.pace(t, s, small)
	if two.TPOT < one.TPOT || two.TPOT > 1.1*one.TPOT || one.Queues || two.Queues {
		t.Errorf("two GPUs give %+v, one %+v", two, one)
	}
	x.load.Concurrency = 5
	if got := x.pace(t, s, small); !got.Queues {
		t.Errorf("five requests for four slots: %+v", got)
	}
}

// asked returns a random deployment and a random load.
func (d dice) asked(s shelf, e *catalog.Engine, wild bool) (*physics.Model, physics.Deployment, physics.Load) {
	gpus := slices.DeleteFunc(s.gpus(), func(g sku.GPU) bool { return len(g.PeakTFLOPs) == 0 })
	gpu, serving := gpus[d.IntN(len(gpus))], d.serving()
	m := physics.NewModel(d.shape(wild), d.weights(s.catalog))
	l := d.layout()
	l.DP, l.Nodes, l.NetworkGBs = d.of(1, 2, 8), d.of(1, 1, l.PP), float64(d.of(0, 50))
	b := physics.Memory(m, &gpu, l, &serving, e)
	load := physics.Load{Input: d.IntN(1 << d.IntN(18)), Output: d.IntN(1 << d.IntN(14)), Concurrency: d.IntN(1 << d.IntN(12))}
	return m, physics.Deployment{GPU: &gpu, Layout: l, Serving: &serving, Budget: &b, Engine: e}, load
}

func (s shelf) gpus() []sku.GPU {
	var out []sku.GPU
	seen := map[string]bool{}
	for _, machine := range s.catalog.SKUs() {
		if gpu, known := s.catalog.GPU(machine.GPU); known && !seen[gpu.Name] {
			seen[gpu.Name] = true
			out = append(out, gpu)
		}
	}
	return out
}

func figures(p physics.Pace) map[string]float64 {
	return map[string]float64{"TTFT": p.TTFT, "TPOT": p.TPOT, "tokens/s": p.OutputTokensPerSecond}
}

func TestSpeedProperties(t *testing.T) {
	s := newShelf(t)
	e := s.vllm(t)
	paced := 0
	for seed := range uint64(4000) {
		d := dice{rand.New(rand.NewPCG(seed, 7))}
		m, asked, load := d.asked(s, e, false)
		p := m.Speed(&asked, load)
		for name, figure := range figures(p) {
			if math.IsNaN(figure) || math.IsInf(figure, 0) || figure < 0 {
				t.Fatalf("seed %d: %s = %v", seed, name, figure)
			}
		}
		if p.TPOT == 0 {
			continue
		}
		paced++
		faster := *asked.GPU
		faster.BandwidthGBs *= 1 + d.Float64()
		wider := asked
		wider.GPU = &faster
		if more := m.Speed(&wider, load); more.OutputTokensPerSecond < p.OutputTokensPerSecond*(1-tiny) {
			t.Errorf("seed %d: more bandwidth gives %+v, less %+v", seed, more, p)
		}
		busier := load
		busier.Concurrency++
		if more := m.Speed(&asked, busier); asked.Layout.DP == 1 && !more.Queues && more.TPOT < p.TPOT*(1-tiny) {
			t.Errorf("seed %d: one request more gives %+v, %+v without", seed, more, p)
		}
		longer := load
		longer.Input += 1 + load.Input/4
		if more := m.Speed(&asked, longer); !more.Queues && more.TTFT < p.TTFT*(1-tiny) {
			t.Errorf("seed %d: a longer prompt gives %+v, a shorter one %+v", seed, more, p)
		}
	}
	if paced < 500 {
		t.Errorf("only %d of the deployments have a pace", paced)
	}
}

// tiny is the error that the search for a steady state may add, because it computes a prompt's share of a step only
// once.
const tiny = 0.01

// For any shape, all figures are finite and not negative.
func FuzzSpeed(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(seed, 1000, 500, 32)
	}
	f.Add(uint64(1), 0, 1, 1)
	f.Add(uint64(2), 1<<24, 1<<24, 1<<20)
	f.Add(uint64(3), -1, -1, -1)
	s := newShelf(f)
	e := s.vllm(f)
	f.Fuzz(func(t *testing.T, seed uint64, input, output, concurrency int) {
		m, asked, _ := dice{rand.New(rand.NewPCG(seed, 11))}.asked(s, e, true)
		bounded := func(n int) int { return max(min(n, 1<<24), -1<<24) }
		p := m.Speed(&asked, physics.Load{Input: bounded(input), Output: bounded(output), Concurrency: bounded(concurrency)})
		for name, figure := range figures(p) {
			if math.IsNaN(figure) || math.IsInf(figure, 0) || figure < 0 {
				t.Errorf("%s = %v", name, figure)
			}
		}
	})
}
