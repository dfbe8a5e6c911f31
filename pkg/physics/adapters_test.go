// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// The expected sums over the layers' inputs and outputs are counted by hand.
func TestAdapterSlots(t *testing.T) {
	const (
		whole = 4*64 + 3*64   // inputs of q, k, v, gate and up, outputs of o and down
		split = 2*8*8 + 3*128 // outputs of q, gate and up, inputs of o and down
		keys  = 2 * 2 * 8     // outputs of k and v
		ends  = 64 + 128      // embedding or output matrix
	)
	mixture := func(s *model.Shape) { s.MoE = &model.MoE{Experts: 8, TopK: 2, Intermediate: 32} }
	latent := func(s *model.Shape) {
		s.MLA = &model.MLA{KVRank: 32, RopeDim: 8, QRank: 16, NopeDim: 8, ValueDim: 8}
	}
	for _, tc := range []struct {
		reason string
		change func(*model.Shape)
		tp, pp int
		want   float64
	}{
		{"one GPU has all", nil, 1, 1, 4*(whole+split+keys) + 2*ends},
		{"half of the matrices is whole on each of two", nil, 2, 1, 4*(whole+split/2+keys/2) + 2*ends},
		{"more GPUs than KV heads: each has one head", nil, 4, 1, 4*(whole+split/4+keys/2) + 2*ends},
		{"a stage has its layers and one end", nil, 1, 2, 2*(whole+split+keys) + ends},
		{"every expert has slots", mixture, 1, 1, 4*(4*64+2*8*8+keys+8*3*(64+32)) + 2*ends},
		{
			"latent attention goes down and up again", latent, 1, 1,
			4*((64+16)+(16+8*16)+(64+40)+(32+8*16)+(8*8+64)+3*(64+128)) + 2*ends,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			weights := physics.Weights{Format: bf16()}
			plain := physics.NewModel(small(tc.change), weights)
			weights.Adapters = physics.Adapters{Slots: 3, Rank: 16}
			adapted := physics.NewModel(small(tc.change), weights)
			gpu, layout, serving := sku.GPU{MemoryGiB: 8}, physics.Layout{TP: tc.tp, PP: tc.pp}, physics.Serving{MaxModelLen: 8, Utilization: 1}
			with, without := physics.Memory(adapted, &gpu, layout, &serving, law()), physics.Memory(plain, &gpu, layout, &serving, law())
			if want := tc.want * 3 * 16 * 2 / (1 << 30); math.Abs(with.Adapters-want) > 1e-12 {
				t.Errorf("%.0f bytes for adapters, want %.0f", with.Adapters*(1<<30), want*(1<<30))
			}
			if lost := without.KVCache - with.KVCache; math.Abs(lost-with.Adapters-(with.Graphs-without.Graphs)) > 1e-9 {
				t.Errorf("the KV cache is smaller by %v, for %v of adapters", lost, with.Adapters)
			}
			if with.Basis != v1beta1.BasisEstimated {
				t.Errorf("the budget is %s", with.Basis)
			}
			if without.Adapters != 0 {
				t.Errorf("%v for no adapters", without.Adapters)
			}
		})
	}
}

// For 8 billion parameters in 32 layers, a slot of rank 16 takes 92 MB: 32 × 81,920 + 2 × 132,352 numbers per rank.
func TestAdapterSlotsOfARealShape(t *testing.T) {
	shape := model.Shape{Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256}
	m := physics.NewModel(shape, physics.Weights{Format: bf16(), Adapters: physics.Adapters{Slots: 1, Rank: 16}})
	if got, want := m.AdapterBytes(), float64(32*81920+2*132352)*16*2; got != want {
		t.Errorf("%.0f bytes, want %.0f", got, want)
	}
}

// An engine that splits by layers loads adapters beside the layers that they change.
func TestAdaptersOfLayerSplit(t *testing.T) {
	weights := physics.Weights{Format: bf16(), Adapters: physics.Adapters{Slots: 2, Rank: 1 << 16}}
	m := physics.NewModel(small(nil), weights)
	one := m.LayerSplit(80, 1, 8, 1, &catalog.EngineMemory{ContextMultiple: 1})
	two := m.LayerSplit(80, 2, 8, 1, &catalog.EngineMemory{ContextMultiple: 1})
	if one.Adapters == 0 || two.Adapters >= one.Adapters {
		t.Errorf("adapters take %v GiB of one GPU, %v of each of two", one.Adapters, two.Adapters)
	}
}
