// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"math"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// Model is a model in one format, prepared so that the memory of a layout follows without allocations.
// It never changes, so it may be shared.
type Model struct {
	shape   model.Shape
	weights Weights
	// kinds of layers in bytes, the heaviest first.
	kinds []layerBytes
	// prefix is how many layers stand at the beginning by rule.
	prefix int
	// layer is the mean of the layers.
	layer float64
	// embedding and output are a matrix each, extra is what is loaded beside, norm the last one.
	embedding, output, extra, norm float64
	// caches are the kinds of KV cache, those of most bytes first.
	caches []cache
	// uniform says that every cache keeps every token; group is the layers of a group where not.
	uniform bool
	group   int
	// params in 10^9, and whether layers have experts or keep states.
	params          float64
	experts, states bool
	// work is what decides the speed.
	work work
}

// layerBytes is what a layer of one kind holds on GPUs.
type layerBytes struct {
	count int
	first bool
	// split is cut by tensor parallelism, keyValue by key and value heads, replicated not at all; experts are
	// cut like split, or spread whole.
	split, keyValue, replicated, experts float64
	kvHeads, expertCount                 int
	// The widths that a batch has within the layer.
	dense, expert, topK int
	// low is what an adapter adds.
	low lowRank
}

// all is a layer on one GPU.
func (l *layerBytes) all() float64 { return l.split + l.experts + l.keyValue + l.replicated }

// on is a layer on each GPU, the one with most experts where they do not come out even.
func (l *layerBytes) on(c cut) float64 {
	return l.split/float64(c.tp) + l.experts*l.expertShare(c) + l.keyValue*l.keyValueShare(c.tp) + l.replicated
}

// expertShare is the part of the experts that each GPU has.
func (l *layerBytes) expertShare(c cut) float64 {
	if c.experts == 0 || l.expertCount == 0 {
		return 1 / float64(c.tp)
	}
	return float64(ceilDiv(l.expertCount, c.experts)) / float64(l.expertCount)
}

// keyValueShare is the part of the key and value heads that each of a number of GPUs has.
func (l *layerBytes) keyValueShare(tp int) float64 {
	if l.kvHeads == 0 {
		return 1 / float64(tp)
	}
	return float64(ceilDiv(l.kvHeads, tp)) / float64(l.kvHeads)
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

// vocabMultiple is what a vocabulary is padded to before it is cut.
const vocabMultiple = 64

func paddedVocab(vocab int) int { return ceilDiv(vocab, vocabMultiple) * vocabMultiple }

// sizes are bytes per parameter on a GPU.
type sizes struct {
	// linear are split matrices, expert those of experts, plain what the format leaves out.
	linear, expert, plain float64
	// projections are parameters of each layer that are replicated and quantised all the same.
	projections int64
}

// plainBytes is the size of a parameter that a format leaves out.
const plainBytes = 2

// sizesOf spreads the bytes of the weights over their parameters: what the format leaves out has its
// size, the rest shares what remains. Without exact bytes the format's own figure holds.
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

// A factor of the quantised weights outside these bounds means that the format is not what the bytes
// are of; then all weights are scaled alike.
const leastFactor, mostFactor = 0.8, 1.6

// split returns the bytes of one layer that the format quantises and those that it leaves out.
func (s sizes) split(l model.Layers) (quantised, other float64) {
	experts := float64(l.Experts) * float64(l.Expert) * s.expert
	linears := float64(l.Attention+l.KeyValue+l.Dense+s.projected(l)) * s.linear
	plain := float64(l.Replicated-s.projected(l)) * s.plain
	if s.linear == plainBytes && s.expert != plainBytes {
		return experts, linears + plain
	}
	return experts + linears, plain
}

// projected are the replicated parameters of a layer that are quantised.
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

// stage is a run of whole layers, one of a pipeline of pp.
type stage struct {
	layers, pp  int
	first, last bool
	// spilled says that the layers which stand at the beginning do not all fit the first stage: then any
	// stage may hold the heaviest.
	spilled bool
}

// stages returns the stages that may be the fullest: the first, the fullest in between, and the last.
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

// partition gives each stage of a pipeline whole layers, so that the fullest stage holds least: the first
// one has the embedding beside its layers, the last one the output matrix. between is the most that a
// stage between them has.
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

// ends divides layers among the first stage and the last one.
func (m *Model) ends(layers int) (first, last int) {
	first = layers / 2
	if m.layer > 0 {
		even := (float64(layers)*m.layer + m.output + m.norm - m.embedding - m.extra) / (2 * m.layer)
		first = int(math.Round(even))
	}
	first = min(max(first, 1), layers-1)
	return first, layers - first
}

// Partition returns how many layers each stage of a pipeline has; nil for one stage. Their sum is the
// number of layers.
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

// stageWeights are the bytes of weights on each GPU of a stage: its share of each kind of layers, whole
// layers of the heaviest first.
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

// share is how many layers of a kind a stage holds of a number of layers. Stages need not be cut where a
// rare and heavy kind would come out uneven.
func (l *layerBytes) share(stage, all, pp int) int {
	return min(ceilDiv(l.count*stage, all), max(ceilDiv(l.count, pp), l.count*stage/all), l.count)
}

// WeightBytes are the bytes of weights on the fullest GPU of a layout.
func (m *Model) WeightBytes(l Layout) float64 {
	most := 0.0
	all, count := m.stages(l.PP)
	for _, s := range all[:count] {
		most = max(most, m.stageWeights(s, l.cut()))
	}
	return most
}

// basis is that of what follows from the weights and a law's constants.
func (m *Model) basis(law v1beta1.Basis) v1beta1.Basis {
	if law == v1beta1.BasisEstimated || m.weights.Basis == v1beta1.BasisEstimated || m.weights.Adapters.Slots > 0 {
		return v1beta1.BasisEstimated
	}
	if law == v1beta1.BasisMeasured || m.weights.Basis == v1beta1.BasisMeasured {
		return v1beta1.BasisMeasured
	}
	return law
}

// ceilDiv divides and rounds up.
func ceilDiv(n, by int) int {
	return (n + by - 1) / by
}

// Bytes are those of all weights on GPUs.
func (m *Model) Bytes() float64 {
	return m.WeightBytes(Layout{TP: 1, PP: 1})
}

// LayerBytes are those of the heaviest layer on each of a number of GPUs.
func (m *Model) LayerBytes(tp int) float64 {
	most := 0.0
	for i := range m.kinds {
		most = max(most, m.kinds[i].on(cut{tp: max(tp, 1)}))
	}
	return most
}
