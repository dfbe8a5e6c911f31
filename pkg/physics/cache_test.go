// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"testing"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
)

// alternating returns the small shape with groups of layers. A token takes 64 bytes in each layer with attention.
func alternating(groups ...model.LayerGroup) model.Shape {
	return small(func(s *model.Shape) {
		s.Pattern, s.Layers = groups, 0
		for _, g := range groups {
			s.Layers += g.Count
		}
	})
}

func full(count int) model.LayerGroup { return model.LayerGroup{Count: count, Mixer: model.MixerFull} }

func window(count, tokens int) model.LayerGroup {
	return model.LayerGroup{Count: count, Mixer: model.MixerWindow, Window: tokens}
}

func chunk(count, tokens int) model.LayerGroup {
	return model.LayerGroup{Count: count, Mixer: model.MixerChunk, Window: tokens}
}

// state returns layers with a state of 1280 bytes: 4*32*2 = 256 for a convolution of 3+1 inputs and 2*8+16 channels,
// and 4*8*8*4 = 1024 for the rest.
func state(count int) model.LayerGroup {
	return model.LayerGroup{Count: count, Mixer: model.MixerMamba2, State: &model.State{
		Conv: 5, KeyHeads: 1, ValueHeads: 2, KeyDim: 8, ValueDim: 8, Bytes: 8,
	}}
}

func TestKVNeed(t *testing.T) {
	const page = 16 * 64
	for _, tc := range []struct {
		reason            string
		shape             model.Shape
		layout            physics.Layout
		sequences, length int
		batch, longest    int
		want              float64 // bytes
	}{
		{reason: "whole blocks of 16 tokens", shape: alternating(full(4)), sequences: 3, length: 17, batch: 64, want: 3 * 2 * 4 * page},
		{reason: "no sequence: the engine asks for one of the longest", shape: alternating(full(4)), length: 17, batch: 64, longest: 100, want: 7 * 4 * page},
		{reason: "half of the heads", shape: alternating(full(4)), layout: physics.Layout{TP: 2}, sequences: 1, length: 16, batch: 64, want: 4 * page / 2},
		{reason: "the stage with most layers", shape: alternating(full(5)), layout: physics.Layout{PP: 2}, sequences: 1, length: 16, batch: 64, want: 3 * page},
		{
			reason: "a window of 32 and a page; one batch of 64 at once beside, whoever's it is", shape: alternating(full(2), window(2, 32)),
			sequences: 10, length: 1024, batch: 64, want: 2 * page * (10*64 + 10*(2+1) + 4),
		},
		{
			reason: "one sequence holds its window and a batch", shape: alternating(full(2), window(2, 32)),
			sequences: 1, length: 1024, batch: 64, want: 2 * page * (64 + (6 + 1)),
		},
		{
			reason: "a short sequence fits its window", shape: alternating(full(2), window(2, 32)),
			sequences: 1, length: 16, batch: 64, want: 2 * page * (1 + (1 + 1)),
		},
		{
			reason: "six layers with a window make three groups of the size of the rarest kind, two", shape: alternating(full(2), window(6, 32)),
			sequences: 1, length: 1024, batch: 64, want: 2 * page * (64 + 3*(6+1)),
		},
		{
			reason: "a last group is padded", shape: alternating(full(2), window(5, 32)),
			sequences: 1, length: 1024, batch: 64, want: 2 * page * (64 + 3*(6+1)),
		},
		{
			reason: "kinds that are almost as common: the larger one's size", shape: alternating(full(4), window(5, 32)),
			sequences: 1, length: 1024, batch: 64, want: 5 * page * (64 + (6 + 1)),
		},
		{
			reason: "a chunk starts anew", shape: alternating(full(2), chunk(2, 32)),
			sequences: 1, length: 1024, batch: 64, want: 2 * page * (64 + 6),
		},
		{
			reason: "a state is a block, and a block of attention is no smaller", shape: alternating(full(1), state(3)),
			sequences: 2, length: 1024, batch: 64, want: 2 * page * 2 * (32 + 3),
		},
		{
			reason: "a state is split by heads", shape: alternating(full(1), state(3)), layout: physics.Layout{TP: 2},
			sequences: 2, length: 1024, batch: 64, want: 2 * page / 2 * 2 * (32 + 3),
		},
		{
			reason: "nothing but states", shape: alternating(state(4)),
			sequences: 2, length: 1024, batch: 64, want: 2 * 4 * 1280,
		},
		{
			reason: "wider heads have fewer tokens to a block of the same size",
			shape:  alternating(model.LayerGroup{Count: 2, Mixer: model.MixerFull, HeadDim: 16}, window(2, 32)),
			layout: physics.Layout{}, sequences: 1, length: 1024, batch: 64, want: 2 * 2 * page * (64 + (3 + 1)),
		},
		{
			reason: "full attention of two widths needs no groups",
			shape:  alternating(model.LayerGroup{Count: 1, Mixer: model.MixerFull, HeadDim: 16}, full(3)), sequences: 1, length: 16, batch: 64,
			want: 5 * page,
		},
		{
			reason: "latent attention",
			shape: small(func(s *model.Shape) {
				s.MLA = &model.MLA{KVRank: 24, RopeDim: 8, NopeDim: 8, ValueDim: 8}
			}),
			layout: physics.Layout{TP: 4}, sequences: 1, length: 16, batch: 64, want: 4 * page,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m := physics.NewModel(tc.shape, physics.Weights{Format: bf16()})
			s := physics.Serving{MaxModelLen: tc.longest, MaxBatchedTokens: tc.batch, MaxNumSeqs: 1}
			got := m.KVNeed(tc.layout, &s, tc.length, tc.sequences, law()) * gib
			if math.Abs(got-tc.want) > 1e-3 {
				t.Errorf("KVNeed = %.1f bytes, want %.1f", got, tc.want)
			}
		})
	}
}

// The figures in the engine's log follow from the size of its KV cache.
func TestCapacity(t *testing.T) {
	gemma := model.Shape{
		Layers: 62, Hidden: 5376, Intermediate: 21504, Heads: 32, KVHeads: 16, HeadDim: 128, Vocab: 262208, Tied: true,
		Pattern: []model.LayerGroup{window(52, 1024), full(10)},
	}
	net := model.LayerGroup{Count: 18, Mixer: model.MixerDeltaNet, State: &model.State{
		Conv: 4, KeyHeads: 16, ValueHeads: 16, KeyDim: 128, ValueDim: 128,
	}}
	hybrid := model.Shape{
		Layers: 24, Hidden: 2048, Intermediate: 6144, Heads: 8, KVHeads: 2, HeadDim: 256, Vocab: 248320, Tied: true,
		Pattern: []model.LayerGroup{net, full(6)},
	}
	for _, tc := range []struct {
		reason      string
		shape       model.Shape
		kv          float64
		length      int
		tokens      int
		concurrency float64
	}{
		{"100 blocks of one layer of each of four", small(nil), 100.5 * 4 * 16 * 64 / gib, 17, 1600, 50},
		{"not a block", small(nil), 0.5 * 4 * 16 * 64 / gib, 17, 0, 0},
		{"nothing", small(nil), -3, 17, 0, 0},
		{
			// A published start with 5.95 GiB logged 1.97 sequences of 262144 tokens.
			"attention blocks of 544 tokens beside states", hybrid, 5.95, 262144, 516_189, 1.97,
		},
		{
			// A published start logged 89994 blocks. A sequence takes 8192 and six times 193 blocks.
			"seven groups of ten layers", gemma, 89994.5 * 10 * 16 * 8192 / gib, 131072, 1_261_548, 9.625,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m := physics.NewModel(tc.shape, physics.Weights{Format: bf16()})
			b := holding(m, physics.Layout{TP: 1, PP: 1}, roomy(tc.length), newShelf(t).vllm(t), tc.kv)
			if math.Abs(float64(b.KVTokens)-float64(tc.tokens)) > 0.002*float64(tc.tokens) {
				t.Errorf("KVTokens = %d, want %d", b.KVTokens, tc.tokens)
			}
			if math.Abs(b.MaxConcurrency-tc.concurrency) > 0.005 {
				t.Errorf("MaxConcurrency = %.3f, want %.2f", b.MaxConcurrency, tc.concurrency)
			}
		})
	}
}
