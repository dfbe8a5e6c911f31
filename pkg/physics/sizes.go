// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import "github.com/modelberth/modelberth/pkg/model"

// vocabMultiple is the multiple to which a vocabulary is padded before it is cut.
const vocabMultiple = 64

func paddedVocab(vocab int) int { return ceilDiv(vocab, vocabMultiple) * vocabMultiple }

// sizes are bytes per parameter on a GPU.
type sizes struct {
	// linear are split matrices, expert those of experts, plain those outside the format.
	linear, expert, plain float64
	// projections are parameters of each layer that are replicated and quantised all the same.
	projections int64
}

// plainBytes is the size of a parameter outside the format.
const plainBytes = 2

// sizesOf spreads the bytes of the weights over their parameters. Parameters outside the format keep their size; the
// others share the remaining bytes. Without exact bytes the format's own figure holds.
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

// A factor of the quantised weights outside these bounds means that the bytes are of another format. Then all weights
// are scaled alike.
const leastFactor, mostFactor = 0.8, 1.6

// split returns the quantised bytes of one layer and the others.
func (s sizes) split(l model.Layers) (quantised, other float64) {
	experts := float64(l.Experts) * float64(l.Expert) * s.expert
	linears := float64(l.Attention+l.KeyValue+l.Dense+s.projected(l)) * s.linear
	plain := float64(l.Replicated-s.projected(l)) * s.plain
	if s.linear == plainBytes && s.expert != plainBytes {
		return experts, linears + plain
	}
	return experts + linears, plain
}

// projected returns the replicated and quantised parameters of a layer.
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

// projections are the down-projections of latent attention: every rank has them whole, and formats of
// linear layers quantise them.
func projections(shape model.Shape) int64 {
	if shape.MLA == nil {
		return 0
	}
	return int64(shape.Hidden) * int64(shape.MLA.KVRank+shape.MLA.RopeDim+shape.MLA.QRank)
}

// outside are the parameters outside the layers.
func outside(shape model.Shape) int64 {
	params := shape.EmbeddingParams() + int64(shape.Hidden) + shape.ExtraParams
	if !shape.Tied {
		params += shape.EmbeddingParams()
	}
	return params
}

// checkpointBytes are those of the bytes that are loaded: some checkpoints of tied models hold the
// embedding a second time.
func checkpointBytes(shape model.Shape, bytes int64, computed, plain float64) float64 {
	stated, twice := float64(bytes), plain*float64(shape.EmbeddingParams())
	if shape.Tied && stated-computed > twice/2 {
		return stated - twice
	}
	return stated
}
