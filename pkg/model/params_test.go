// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/model"
)

// tiny has 2 layers of width 8, with 4 heads and 2 KV heads of 4. A layer has 8·16 (queries) + 2·8·8 (keys and values)
// + 16·8 (output) + 3·8·16 (MLP) + 2·8 (norms) = 784 parameters.
func tiny(change func(*model.Shape)) model.Shape {
	s := model.Shape{Layers: 2, Hidden: 8, Intermediate: 16, Heads: 4, KVHeads: 2, HeadDim: 4, Vocab: 100}
	change(&s)
	return s
}

func grouped(groups ...model.LayerGroup) func(*model.Shape) {
	return func(s *model.Shape) { s.Pattern = groups }
}

// Each part of a shape adds the parameters of its matrices. The figures are calculated by hand.
func TestLayerParams(t *testing.T) {
	const plain, embeddings = 784, 2*100*8 + 8
	state := &model.State{Conv: 4, KeyHeads: 1, ValueHeads: 2, KeyDim: 8, ValueDim: 4}
	type figures struct{ Params, Active int64 }
	same := func(layers int64) figures { return figures{embeddings + layers, embeddings + layers} }
	for _, tc := range []struct {
		reason string
		change func(*model.Shape)
		want   figures
	}{
		{"plain", func(*model.Shape) {}, same(2 * plain)},
		{"a tied output matrix", func(s *model.Shape) { s.Tied = true }, figures{808 + 2*plain, 808 + 2*plain}},
		{"biases of queries, keys, values and the output", func(s *model.Shape) { s.QKVBias, s.OutputBias = true, true }, same(2 * (plain + 16 + 16 + 8))},
		{"norms of each head", func(s *model.Shape) { s.QKNorm = true }, same(2 * (plain + 4 + 4))},
		{"norms of all heads", func(s *model.Shape) { s.WideQKNorm = true }, same(2 * (plain + 16 + 8))},
		{"an output gate", func(s *model.Shape) { s.GatedAttention = true }, same(2 * (plain + 8*16))},
		{"sinks", func(s *model.Shape) { s.Sinks = true }, same(2 * (plain + 4))},
		{"an MLP of two matrices", func(s *model.Shape) { s.PlainMLP = true }, same(2 * (plain - 8*16))},
		{"one norm", func(s *model.Shape) { s.Norms = 1 }, same(2 * (plain - 8))},
		{"values of another width", func(s *model.Shape) { s.ValueDim = 2 }, same(2 * (plain - 8*4 - 8*8))},
		{"a vision tower", func(s *model.Shape) { s.ExtraParams = 1000 }, same(2*plain + 1000)},
		{
			"experts: of 4, 2 work; a router of 8·4",
			func(s *model.Shape) { s.MoE = &model.MoE{Experts: 4, TopK: 2, Intermediate: 2} },
			figures{embeddings + 2*(plain-384+32+4*48), embeddings + 2*(plain-384+32+2*48)},
		},
		{
			"biases of experts (2·2+8) and of the router",
			func(s *model.Shape) { s.MoE = &model.MoE{Experts: 4, TopK: 4, Intermediate: 2, Bias: true} },
			same(2 * (plain - 384 + 32 + 4 + 4*(48+12))),
		},
		{
			"a bias of the router alone, a shared expert of 3 and its gate",
			func(s *model.Shape) {
				s.MoE = &model.MoE{Experts: 4, TopK: 4, Intermediate: 2, RouterBias: true, SharedIntermediate: 3, SharedGate: true}
			},
			same(2 * (plain - 384 + 32 + 4 + 4*48 + 72 + 8)),
		},
		{
			"experts behind a projection to 2 and back",
			func(s *model.Shape) { s.MoE = &model.MoE{Experts: 4, TopK: 4, Intermediate: 2, LatentDim: 2} },
			same(2 * (plain - 384 + 32 + 2*16 + 4*12)),
		},
		{
			"the first layer dense",
			func(s *model.Shape) { s.MoE = &model.MoE{Experts: 4, TopK: 4, Intermediate: 2, DenseLayers: 1} },
			same(plain + plain - 384 + 32 + 4*48),
		},
		{
			"experts in every second layer",
			func(s *model.Shape) { s.MoE = &model.MoE{Experts: 4, TopK: 4, Intermediate: 2, Every: 2} },
			same(plain + plain - 384 + 32 + 4*48),
		},
		{
			"latent attention: 8·(6+2)+6 down, 8·5+5 and 5·4·(3+2) for queries, 6·4·(3+4) up, 16·8 out",
			func(s *model.Shape) { s.MLA = &model.MLA{KVRank: 6, RopeDim: 2, QRank: 5, NopeDim: 3, ValueDim: 4} },
			same(2 * (64 + 6 + 45 + 100 + 168 + 128 + 384 + 16)),
		},
		{
			"queries that are not compressed",
			func(s *model.Shape) { s.MLA = &model.MLA{KVRank: 6, RopeDim: 2, NopeDim: 3, ValueDim: 4} },
			same(2 * (64 + 6 + 8*4*5 + 168 + 128 + 384 + 16)),
		},
		{
			"heads that attend to the latent vector, an output of 2 groups of rank 3, an indexer of 2·4 in one layer",
			func(s *model.Shape) {
				s.MLA = &model.MLA{
					KVRank: 6, RopeDim: 2, QRank: 5, NopeDim: 3, ValueDim: 4,
					Direct: true, OutputRank: 3, OutputGroups: 2, IndexHeads: 2, IndexDim: 4,
				}
				s.Pattern = []model.LayerGroup{
					{Count: 1, Mixer: model.MixerFull}, {Count: 1, Mixer: model.MixerFull, ReusedIndex: true},
				}
			},
			same(2*(64+6+45+100+16*3+2*3*8+384+16) + 5*8 + 8*4 + 2*4 + 8*2),
		},
		{
			"a window adds nothing; a group's KV heads, head dimension and MLP are its own",
			grouped(
				model.LayerGroup{Count: 1, Mixer: model.MixerWindow, Window: 3},
				model.LayerGroup{Count: 1, Mixer: model.MixerFull, KVHeads: 1, HeadDim: 8, Intermediate: 2},
			),
			same(plain + 8*32 + 2*8*8 + 32*8 + 3*8*2 + 16),
		},
		{
			"values that are the keys; a reused cache, whose projections exist",
			grouped(
				model.LayerGroup{Count: 1, Mixer: model.MixerFull, KeysAreValues: true},
				model.LayerGroup{Count: 1, Mixer: model.MixerFull, ReusedKV: true},
			),
			same(2*plain - 64),
		},
		{
			"layers with one part have one norm",
			grouped(
				model.LayerGroup{Count: 1, Mixer: model.MixerFull, FeedForward: model.FeedForwardNone},
				model.LayerGroup{Count: 1, Mixer: model.MixerNone},
			),
			same(plain),
		},
		{
			"Mamba 2: in 8·(8+24+2), convolution 24·5, 3·2 scalars, norm 8, out 8·8",
			grouped(model.LayerGroup{Count: 2, Mixer: model.MixerMamba2, FeedForward: model.FeedForwardNone, State: state}),
			same(2 * (272 + 120 + 6 + 8 + 64 + 8)),
		},
		{
			"a gated delta net: in 8·(16+16+4), convolution 24·4, 2·2 scalars, norm 4, out 8·8",
			grouped(model.LayerGroup{Count: 2, Mixer: model.MixerDeltaNet, State: state}),
			same(2 * (288 + 96 + 4 + 4 + 64 + 384 + 16)),
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := tiny(tc.change)
			got := figures{s.Params(), s.ActiveParams()}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

// The cache of a sequence in a layer has a part per token and a part independent of the length.
func TestLayerCache(t *testing.T) {
	state := &model.State{Conv: 4, KeyHeads: 1, ValueHeads: 2, KeyDim: 8, ValueDim: 4, Bytes: 2}
	sparse := &model.MLA{KVRank: 64, RopeDim: 16, QRank: 4, NopeDim: 4, ValueDim: 4, IndexHeads: 1, IndexDim: 8}
	type cache struct {
		Token, Split, Eight float64 // bytes at 16 bits, on one of 4 ranks, and at 8 bits
		Window              int
		Chunked             bool
		State, Conv         int64
		StateBytes          int
	}
	for _, tc := range []struct {
		reason string
		change func(*model.Shape)
		want   cache
	}{
		{"2 KV heads of 4 + 4; a rank has one head at least", func(*model.Shape) {}, cache{Token: 32, Split: 16, Eight: 16}},
		{"values of another width", func(s *model.Shape) { s.ValueDim = 2 }, cache{Token: 24, Split: 12, Eight: 12}},
		{
			"a window", grouped(model.LayerGroup{Count: 2, Mixer: model.MixerWindow, Window: 3}),
			cache{Token: 32, Split: 16, Eight: 16, Window: 3},
		},
		{
			"a chunk, and KV heads of its own", grouped(model.LayerGroup{Count: 2, Mixer: model.MixerChunk, Window: 3, KVHeads: 4}),
			cache{Token: 64, Split: 16, Eight: 32, Window: 3, Chunked: true},
		},
		{
			"keys that are values are kept twice", grouped(model.LayerGroup{Count: 2, Mixer: model.MixerFull, KeysAreValues: true}),
			cache{Token: 32, Split: 16, Eight: 16},
		},
		{"a reused cache", grouped(model.LayerGroup{Count: 2, Mixer: model.MixerFull, ReusedKV: true}), cache{}},
		{
			"a latent vector on every rank",
			func(s *model.Shape) { s.MLA = &model.MLA{KVRank: 6, RopeDim: 2, NopeDim: 3, ValueDim: 4} },
			cache{Token: 16, Split: 16, Eight: 8},
		},
		{
			"sparse attention: at 8 bits 64 + 64/32 and a rotary part of 32, always an indexer of 8 + 4",
			func(s *model.Shape) { s.MLA = sparse },
			cache{Token: 172, Split: 172, Eight: 110},
		},
		{
			"an indexer of an earlier layer",
			func(s *model.Shape) {
				s.MLA = sparse
				s.Pattern = []model.LayerGroup{{Count: 2, Mixer: model.MixerFull, ReusedIndex: true}}
			},
			cache{Token: 160, Split: 160, Eight: 98},
		},
		{
			"Mamba 2: 3·(8+16) of the convolution, 8·8 of the state",
			grouped(model.LayerGroup{Count: 2, Mixer: model.MixerMamba2, State: state}),
			cache{Conv: 72, State: 64, StateBytes: 2},
		},
		{
			"a gated delta net: 3·(16+8) of the convolution, 2·4·8 of the state",
			grouped(model.LayerGroup{Count: 2, Mixer: model.MixerDeltaNet, State: state}),
			cache{Conv: 72, State: 64, StateBytes: 2},
		},
		{"no attention", grouped(model.LayerGroup{Count: 2, Mixer: model.MixerNone}), cache{}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := tiny(tc.change)
			kinds := s.LayerKinds()
			if len(kinds) != 1 || kinds[0].Count != 2 {
				t.Fatalf("LayerKinds() = %+v, want one kind of 2 layers", kinds)
			}
			l := kinds[0]
			got := cache{
				Token: s.LayerKVBytes(l, 1, 2), Split: s.LayerKVBytes(l, 4, 2), Eight: s.LayerKVBytes(l, 1, 1),
				Window: l.Window, Chunked: l.Chunked, State: l.StateElements, Conv: l.ConvElements, StateBytes: l.StateBytes,
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("cache (-want +got):\n%s", diff)
			}
		})
	}
}

// KVBytes does not count layers with a window or a state.
func TestKVBytesCountsFullLayers(t *testing.T) {
	s := tiny(grouped(
		model.LayerGroup{Count: 1, Mixer: model.MixerFull},
		model.LayerGroup{Count: 1, Mixer: model.MixerWindow, Window: 3},
	))
	if got := s.KVBytes(2); got != 32 {
		t.Errorf("KVBytes(2) = %v, want the 32 of one layer", got)
	}
	if got := s.KVBytesOnRank(2, 2); got != 16 {
		t.Errorf("KVBytesOnRank(2, 2) = %v, want the 16 of one head", got)
	}
}

func TestLoadedBytes(t *testing.T) {
	a := model.Artifact{WeightBytes: 100, IdleBytes: 30}
	if got := a.LoadedBytes(); got != 70 {
		t.Errorf("LoadedBytes() = %d, want 70", got)
	}
}
