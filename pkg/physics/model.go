// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"slices"

	"github.com/modelberth/modelberth/pkg/model"
)

// Model is a model in one format, prepared so that computing a layout's memory allocates nothing. It is immutable, so
// goroutines may share it.
type Model struct {
	shape   model.Shape
	weights Weights
	// kinds are the kinds of layers, the heaviest first.
	kinds []layerBytes
	// prefix is the number of layers that always are at the beginning.
	prefix int
	// layer is the mean size of a layer in bytes.
	layer float64
	// embedding and output are the sizes of these matrices in bytes, extra of other weights, norm of the last norm.
	embedding, output, extra, norm float64
	caching
	// params is in 10^9. experts and states report whether layers have experts or keep a state.
	params          float64
	experts, states bool
	// work is the input of the law of speed.
	work work
}

// NewModel prepares a model in one format.
func NewModel(shape model.Shape, w Weights) *Model {
	m := &Model{shape: shape.Clone(), weights: w, params: float64(shape.Params()) / 1e9, experts: shape.MoE != nil}
	kinds := shape.LayerKinds()
	size := sizesOf(shape, kinds, w)
	for _, kind := range kinds {
		if kind.Count <= 0 {
			continue
		}
		bytes := size.layer(kind)
		bytes.low = lowRankOf(shape, kind)
		m.kinds = append(m.kinds, bytes)
		if kind.First {
			m.prefix += kind.Count
		}
		m.addCache(kind)
	}
	for i := range m.kinds {
		m.layer += float64(m.kinds[i].count) * m.kinds[i].all() / float64(max(shape.Layers, 1))
	}
	slices.SortStableFunc(m.kinds, func(a, b layerBytes) int { return cmp.Compare(b.all(), a.all()) })
	m.embedding = size.plain * float64(paddedVocab(shape.Vocab)) * float64(shape.Hidden)
	m.output = m.embedding
	m.extra = size.plain * float64(shape.ExtraParams)
	m.norm = size.plain * float64(shape.Hidden)
	m.groupCaches()
	m.work = workOf(m.shape, kinds, size)
	m.work.addMixers(m.shape, m.caches)
	return m
}
