// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// dice makes random shapes of all kinds, within the catalogue's limits.
type dice struct{ *rand.Rand }

func (d dice) of(values ...int) int { return values[d.IntN(len(values))] }

func (d dice) often() bool { return d.IntN(3) > 0 }

// shape returns a model's shape. Wild shapes have dimensions that no real model has.
func (d dice) shape(wild bool) model.Shape {
	dim := func(least, most int) int {
		if wild && d.IntN(4) == 0 {
			return d.of(1, most, least+d.IntN(most-least+1))
		}
		return least + d.IntN(min(most-least, 8*least)+1)
	}
	kv := d.of(1, 2, 4, 8, 16)
	s := model.Shape{
		Hidden: dim(64, 1<<18), Intermediate: dim(64, 1<<20), KVHeads: kv, Heads: kv * d.of(1, 2, 8), HeadDim: dim(16, 1<<12),
		Vocab: dim(1000, 1<<24), Tied: d.often(), QKNorm: d.often(), Norms: d.IntN(5),
	}
	for range 1 + d.IntN(4) {
		s.Pattern = append(s.Pattern, d.group(dim))
		s.Layers += s.Pattern[len(s.Pattern)-1].Count
	}
	if !d.often() {
		s.Pattern = nil
	}
	if d.often() {
		s.MoE = &model.MoE{
			Experts: dim(2, 1<<10), Intermediate: dim(32, 1<<16), SharedIntermediate: d.of(0, 512), DenseLayers: d.IntN(s.Layers),
			Bias: d.often(),
		}
		s.MoE.TopK = 1 + d.IntN(s.MoE.Experts)
	}
	if !d.often() {
		s.MLA = &model.MLA{KVRank: dim(16, 1<<12), RopeDim: dim(8, 1<<10), QRank: d.of(0, 512), NopeDim: 64, ValueDim: 64}
		s.MLA.IndexHeads = d.of(0, 8)
		s.MLA.IndexDim = 128 * min(s.MLA.IndexHeads, 1)
	}
	return s
}

func (d dice) group(dim func(least, most int) int) model.LayerGroup {
	g := model.LayerGroup{Count: 1 + d.IntN(24), Mixer: model.MixerFull}
	switch d.IntN(6) {
	case 0:
		g.Mixer, g.Window = model.MixerWindow, dim(1, 1<<20)
	case 1:
		g.Mixer, g.Window = model.MixerChunk, dim(1, 1<<20)
	case 2:
		g.Mixer = []model.Mixer{model.MixerMamba2, model.MixerDeltaNet}[d.IntN(2)]
		g.State = &model.State{Conv: dim(2, 64), KeyHeads: dim(1, 256), ValueHeads: dim(1, 256), KeyDim: dim(8, 1<<10), ValueDim: dim(8, 1<<10)}
	case 3:
		g.Mixer, g.FeedForward = model.MixerNone, model.FeedForwardDense
	}
	return g
}

func (d dice) weights(c *catalog.Catalog) physics.Weights {
	formats := c.Quantizations()
	return physics.Weights{Format: formats[d.IntN(len(formats))], Bytes: int64(d.of(0, 0, 1, 1<<30, 1<<42))}
}

func (d dice) layout() physics.Layout {
	return physics.Layout{TP: d.of(1, 2, 4, 8), PP: d.of(1, 2, 3, 4, 16), DP: 1, Nodes: 1, LinkedGPUs: d.of(0, 2, 8)}
}

func (d dice) serving() physics.Serving {
	return physics.Serving{
		MaxModelLen: 1 + d.IntN(1<<20), MaxNumSeqs: 1 + d.IntN(1024), MaxBatchedTokens: 1 << (4 + d.IntN(12)),
		Utilization: d.Float64(), KVType: []string{"", "auto", "fp8", "nvfp4", "fp8_ds_mla"}[d.IntN(5)], Eager: d.often(),
	}
}

func TestProperties(t *testing.T) {
	s := newShelf(t)
	e := s.vllm(t)
	for seed := range uint64(2000) {
		d := dice{rand.New(rand.NewPCG(seed, 3))}
		shape, w, l, serving := d.shape(false), d.weights(s.catalog), d.layout(), d.serving()
		m := physics.NewModel(shape, w)
		gpu := sku.GPU{MemoryGiB: 200 * d.Float64()}
		b := physics.Memory(m, &gpu, l, &serving, e)

		larger := gpu
		larger.MemoryGiB *= 1 + d.Float64()
		if more := physics.Memory(m, &larger, l, &serving, e); more.KVCache < b.KVCache || more.KVTokens < b.KVTokens {
			t.Errorf("seed %d: more memory gives %+v, less gave %+v", seed, more, b)
		}
		wider := l
		wider.TP *= 2
		if more, fewer := m.WeightBytes(wider), m.WeightBytes(l); more > fewer*(1+1e-12) {
			t.Errorf("seed %d: weights of %.0f bytes on each of %d GPUs, %.0f on each of %d", seed, more, wider.TP, fewer, l.TP)
		}
		if each := m.WeightBytes(l) * float64(l.TP*l.PP); each < m.Bytes()*(1-1e-9) {
			t.Errorf("seed %d: %v holds %.0f bytes of weights, of %.0f", seed, l, each, m.Bytes())
		}
		length, sequences := 1+d.IntN(1<<18), 1+d.IntN(64)
		need := m.KVNeed(l, &serving, length, sequences, e)
		if longer := m.KVNeed(l, &serving, length+1+d.IntN(1000), sequences, e); longer < need {
			t.Errorf("seed %d: longer sequences need %v GiB, shorter ones %v", seed, longer, need)
		}
		if more := m.KVNeed(l, &serving, length, sequences+1, e); more < need {
			t.Errorf("seed %d: one sequence more needs %v GiB, fewer %v", seed, more, need)
		}
		if one := m.KVNeed(l, &serving, 1, 0, e); l.PP == 1 && one > b.KVCache != (b.MaxConcurrency < 1) && one > 0 {
			t.Errorf("seed %d: one sequence needs %v GiB of %v, %v are held", seed, one, b.KVCache, b.MaxConcurrency)
		}
	}
}

// For any shape, all figures are finite and sensible.
func FuzzMemory(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed, 80.0, 8, 4, 1<<20)
	}
	f.Add(uint64(1), 0.0, 0, 0, 0)
	f.Add(uint64(2), 4096.0, 1<<10, 1<<12, 1<<24)
	s := newShelf(f)
	e := s.vllm(f)
	f.Fuzz(func(t *testing.T, seed uint64, memory float64, tp, pp, length int) {
		if math.IsNaN(memory) || memory < 0 || memory > 4096 {
			return
		}
		d := dice{rand.New(rand.NewPCG(seed, 5))}
		m := physics.NewModel(d.shape(true), d.weights(s.catalog))
		l := physics.Layout{TP: tp & 1023, PP: pp & 4095, DP: 1}
		serving := d.serving()
		serving.MaxModelLen = length & (1<<24 - 1)
		b := physics.Memory(m, &sku.GPU{MemoryGiB: memory}, l, &serving, e)
		split := m.LayerSplit(memory, 1+tp&63, serving.MaxModelLen, 1+pp&1023, &catalog.EngineMemory{
			ReserveGiB: 1, BatchTokens: 512, LogitBytes: 4, HiddenBytes: 32, MaskBytes: 6, InputCopies: 4, KVBytes: 2, ContextMultiple: 256,
		})
		for name, figure := range map[string]float64{
			"weights": b.Weights, "activation": b.Activation, "non-torch": b.NonTorch, "graphs": b.Graphs, "tokens": float64(b.KVTokens),
			"concurrency": b.MaxConcurrency, "need": m.KVNeed(l, &serving, serving.MaxModelLen, 8, e), "KV bytes": m.KVBytesPerToken(l, serving.KVType),
			"layer": m.LayerBytes(l.TP), "split weights": split.Weights, "split KV": split.KVCache, "split buffers": split.Activation,
		} {
			if math.IsNaN(figure) || math.IsInf(figure, 0) || figure < 0 {
				t.Errorf("%s = %v", name, figure)
			}
		}
		if math.IsNaN(b.KVCache) || b.KVCache > memory {
			t.Errorf("KV cache = %v GiB of %v", b.KVCache, memory)
		}
	})
}

func BenchmarkMemory(b *testing.B) {
	s := newShelf(b)
	e := s.vllm(b)
	p, known := s.find("openai/gpt-oss-120b")
	if !known {
		b.Fatal("the model is not there")
	}
	m, gpu := s.model(b, p), sku.GPU{MemoryGiB: 79.1}
	l := physics.Layout{TP: 2, PP: 4, DP: 1, LinkedGPUs: 8}
	serving := physics.Serving{MaxModelLen: 8192, MaxNumSeqs: 256, MaxBatchedTokens: 8192, Utilization: 0.92}
	b.ReportAllocs()
	for b.Loop() {
		if budget := physics.Memory(m, &gpu, l, &serving, e); budget.KVCache < m.KVNeed(l, &serving, 8192, 8, e) {
			b.Fatal("it does not fit")
		}
	}
}

func BenchmarkNewModel(b *testing.B) {
	s := newShelf(b)
	p, known := s.find("openai/gpt-oss-120b")
	if !known {
		b.Fatal("the model is not there")
	}
	b.ReportAllocs()
	for b.Loop() {
		s.model(b, p)
	}
}
