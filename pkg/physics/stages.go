// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"math"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// stage is a run of whole layers: one of the pp stages of a pipeline.
type stage struct {
	layers, pp  int
	first, last bool
	// spilled: the layers that belong at the beginning do not all fit into the first stage, so any stage may hold the
	// heaviest layers.
	spilled bool
}

// stages returns the stages that may be the fullest: the first, the last, and the fullest one between them.
func (m *Model) stages(pp int) (all [3]stage, count int) {
	if pp <= 1 {
		all[0] = stage{layers: m.shape.Layers, pp: 1, first: true, last: true}
		return all, 1
	}
	first, between, last := m.partition(pp)
	spilled := m.prefix > first
	all[0] = stage{layers: first, pp: pp, first: true, spilled: spilled}
	all[1] = stage{layers: last, pp: pp, last: true, spilled: spilled}
	if pp == 2 {
		return all, 2
	}
	all[2] = stage{layers: between, pp: pp, spilled: spilled}
	return all, 3
}

// partition divides whole layers among the stages of a pipeline so that the fullest stage is as small as possible. The
// first stage also has the embedding, and the last one the output matrix. between is the largest number of layers of a
// stage between them.
func (m *Model) partition(pp int) (first, between, last int) {
	layers := m.shape.Layers
	if pp > layers {
		return min(max(layers-(pp-2), 0), 1), 1, 0
	}
	lightest := math.Inf(1)
	for most := max(layers/pp, 1); ; most++ {
		rest := max(layers-(pp-2)*most, 2)
		f, l := m.ends(rest)
		fullest := max(float64(f)*m.layer+m.embedding+m.extra, float64(l)*m.layer+m.output+m.norm)
		if pp > 2 {
			fullest = max(fullest, float64(most)*m.layer)
		}
		if fullest >= lightest {
			return first, between, last
		}
		first, between, last, lightest = f, most, l, fullest
	}
}

// ends divides a number of layers between the first stage and the last one.
func (m *Model) ends(layers int) (first, last int) {
	first = layers / 2
	if m.layer > 0 {
		even := (float64(layers)*m.layer + m.output + m.norm - m.embedding - m.extra) / (2 * m.layer)
		first = int(math.Round(even))
	}
	first = min(max(first, 1), layers-1)
	return first, layers - first
}

// Partition returns the number of layers of each stage of a pipeline; nil for one stage. Their sum is the number of
// layers.
func (m *Model) Partition(pp int) []int {
	if pp <= 1 || pp > m.shape.Layers {
		return nil
	}
	first, _, last := m.partition(pp)
	out := make([]int, pp)
	out[0], out[pp-1] = first, last
	for left, i := m.shape.Layers-first-last, 1; i < pp-1; i++ {
		out[i] = ceilDiv(left, pp-1-i)
		left -= out[i]
	}
	return out
}

// stageWeights returns the bytes of weights on each GPU of a stage: its share of each kind of layers, in whole layers,
// the heaviest kind first.
func (m *Model) stageWeights(s stage, c cut) float64 {
	share := 1 / float64(c.tp)
	bytes := 0.0
	if s.first {
		bytes += (m.embedding + m.extra) * share
	}
	if s.last {
		bytes += m.norm
		if !m.shape.Tied || !s.first {
			bytes += m.output * share
		}
	}
	left, others := s.layers, max(m.shape.Layers-m.prefix, 1)
	if s.first && !s.spilled {
		left -= m.prefix
	}
	spread := left
	for i := range m.kinds {
		kind := &m.kinds[i]
		layers := min(kind.share(spread, others, s.pp), left)
		switch {
		case s.spilled:
			layers = min(kind.count, left)
		case kind.first && s.first:
			bytes += float64(kind.count) * kind.on(c)
			continue
		case kind.first:
			continue
		}
		left -= layers
		bytes += float64(layers) * kind.on(c)
	}
	for i := 0; i < len(m.kinds) && left > 0; i++ {
		if kind := &m.kinds[i]; !kind.first {
			more := min(kind.count-min(kind.share(spread, others, s.pp), spread), left)
			left -= more
			bytes += float64(more) * kind.on(c)
		}
	}
	return bytes
}

// WeightBytes returns the bytes of weights on the fullest GPU of a layout.
func (m *Model) WeightBytes(l Layout) float64 {
	most := 0.0
	all, count := m.stages(l.PP)
	for _, s := range all[:count] {
		most = max(most, m.stageWeights(s, l.cut()))
	}
	return most
}

// basis returns the basis of figures that follow from the weights and a law's constants.
func (m *Model) basis(law v1beta1.Basis) v1beta1.Basis {
	if law == v1beta1.BasisEstimated || m.weights.Basis == v1beta1.BasisEstimated || m.weights.Adapters.Slots > 0 {
		return v1beta1.BasisEstimated
	}
	if law == v1beta1.BasisMeasured || m.weights.Basis == v1beta1.BasisMeasured {
		return v1beta1.BasisMeasured
	}
	return law
}

// Bytes returns the size of all weights on GPUs.
func (m *Model) Bytes() float64 {
	return m.WeightBytes(Layout{TP: 1, PP: 1})
}

// LayerBytes returns the bytes of the heaviest layer on each of a number of GPUs.
func (m *Model) LayerBytes(tp int) float64 {
	most := 0.0
	for i := range m.kinds {
		most = max(most, m.kinds[i].on(cut{tp: max(tp, 1)}))
	}
	return most
}
