// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import "github.com/modelberth/modelberth/pkg/model"

// vocabMultiple is the multiple to which the engine pads a vocabulary before it cuts it.
const vocabMultiple = 64

func paddedVocab(vocab int) int { return ceilDiv(vocab, vocabMultiple) * vocabMultiple }

// sizes are bytes per parameter on a GPU.
type sizes struct {
	// linear is for split matrices, expert for those of experts, plain for weights outside the format.
	linear, expert, plain float64
	// projections is the number of parameters of each layer that are replicated but still quantised.
	projections int64
}

// plainBytes is the size of a parameter outside the format.
const plainBytes = 2

// sizesOf divides the bytes of the weights by their parameters. Parameters outside the format keep their size, and the
// others share the remaining bytes. Without exact bytes, the format's own figure counts.
func sizesOf(shape model.Shape, kinds []model.Layers, w Weights) sizes {
	format := w.Format
	s := sizes{linear: format.BytesPerParam, expert: format.BytesPerParam, plain: plainBytes}
	switch format.Scope {
	case model.ScopeAll, "":
		s.plain = format.BytesPerParam
	case model.ScopeExperts:
		s.linear = plainBytes
	case model.ScopeLinears:
		s.projections = projections(shape)
	}
	quantised, other := 0.0, s.plain*float64(outside(shape))
	for _, kind := range kinds {
		q, o := s.split(kind)
		quantised += float64(kind.Count) * q
		other += float64(kind.Count) * o
	}
	factor := 1.0
	if bytes := checkpointBytes(shape, w.Bytes, quantised+other, s.plain); bytes > 0 {
		factor = (bytes - other) / quantised
		if !(factor >= leastFactor && factor <= mostFactor) || format.Scope == model.ScopeAll {
			factor = bytes / (quantised + other)
			s.plain *= factor
			if format.Scope == model.ScopeExperts {
				s.linear *= factor
			}
		}
	}
	factor *= w.loadedFactor()
	s.expert *= factor
	if format.Scope != model.ScopeExperts {
		s.linear *= factor
	}
	return s
}

// If the factor of the quantised weights is outside these limits, the bytes are of another format. All weights are then
// scaled alike.
const leastFactor, mostFactor = 0.8, 1.6

// split returns the bytes of the quantised weights of one layer, and of the other weights.
func (s sizes) split(l model.Layers) (quantised, other float64) {
	experts := float64(l.Experts) * float64(l.Expert) * s.expert
	linears := float64(l.Attention+l.KeyValue+l.Dense+s.projected(l)) * s.linear
	plain := float64(l.Replicated-s.projected(l)) * s.plain
	if s.linear == plainBytes && s.expert != plainBytes {
		return experts, linears + plain
	}
	return experts + linears, plain
}

// projected returns how many parameters of a layer are replicated and quantised.
func (s sizes) projected(l model.Layers) int64 {
	if l.Latent == 0 {
		return 0
	}
	return min(s.projections, l.Replicated)
}

// layer returns the bytes of one layer on GPUs.
func (s sizes) layer(l model.Layers) layerBytes {
	projected := s.projected(l)
	return layerBytes{
		count: l.Count, first: l.First, kvHeads: l.KVHeads,
		split:   float64(l.Attention+l.Dense) * s.linear,
		experts: float64(l.Experts) * float64(l.Expert) * s.expert, expertCount: l.Experts,
		keyValue:   float64(l.KeyValue) * s.linear,
		replicated: float64(projected)*s.linear + float64(l.Replicated-projected)*s.plain,
		dense:      l.DenseWidth, expert: l.ExpertWidth, topK: l.TopK,
	}
}

// projections returns the number of parameters of latent attention's down-projections. Every rank has them whole, and
// formats of linear layers quantise them.
func projections(shape model.Shape) int64 {
	if shape.MLA == nil {
		return 0
	}
	return int64(shape.Hidden) * int64(shape.MLA.KVRank+shape.MLA.RopeDim+shape.MLA.QRank)
}

// outside returns the number of parameters outside the layers.
func outside(shape model.Shape) int64 {
	params := shape.EmbeddingParams() + int64(shape.Hidden) + shape.ExtraParams
	if !shape.Tied {
		params += shape.EmbeddingParams()
	}
	return params
}

// checkpointBytes returns the part of a checkpoint's bytes that is loaded. Some checkpoints of tied models hold the
// embedding twice.
func checkpointBytes(shape model.Shape, bytes int64, computed, plain float64) float64 {
	stated, twice := float64(bytes), plain*float64(shape.EmbeddingParams())
	if shape.Tied && stated-computed > twice/2 {
		return stated - twice
	}
	return stated
}
