// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"math"

	"github.com/modelberth/modelberth/pkg/model"
)

// work is what a step reads and computes, prepared once for a model in one format.
type work struct {
	// linear are the matrices of attention and dense layers, and the down-projections that the format covers. plain are
	// the other replicated weights, such as norms and routers. Every token uses both.
	linear, plain matrices
	// experts has one entry per kind of layer.
	experts []expertWork
	// mixers are the attention or state of each kind of layer.
	mixers []mixer
	// output and outputParams are the bytes and parameters of the matrix that computes the logits.
	output, outputParams float64
	// halves is the number of attention and feed-forward parts in layers without experts, expertLayers the number of
	// layers with experts, and bare the number of those without attention or state. sums is the number of parts after
	// which tensor parallelism sums over GPUs.
	halves, expertLayers, bare, sums float64
}

// matrices are the bytes and parameters of matrices, by how tensor parallelism cuts them.
type matrices struct {
	split, replicated             float64
	splitParams, replicatedParams float64
	// keyValue is cut by heads.
	keyValue, keyValueParams float64
	kvHeads                  int
}

// expertWork has the experts of the layers of one kind.
type expertWork struct {
	layers, experts, topK float64
	// missed is the logarithm of the probability that a token does not choose a given expert.
	missed float64
	// bytes and params are those of one expert.
	bytes, params float64
}

// mixer is the attention, or the state, of the layers of one kind.
type mixer struct {
	cache cache
	// pair is the number of operations of a query and a key in all layers. index is the same for the indexer, which
	// every GPU computes with all its heads.
	pair, index float64
	// chosen is the number of tokens that sparse attention reads; 0 means all. fixed: its kernels compute that many for
	// every query, even if there are fewer.
	chosen float64
	fixed  bool
}

// workOf prepares the work of a model.
func workOf(shape model.Shape, kinds []model.Layers, size sizes) work {
	w := work{outputParams: float64(shape.EmbeddingParams())}
	w.output = w.outputParams * size.plain
	for _, kind := range kinds {
		w.addLayers(kind, size)
	}
	return w
}

func (w *work) addLayers(kind model.Layers, size sizes) {
	count, projected := float64(kind.Count), float64(size.projected(kind))
	replicated := float64(kind.Replicated)
	w.linear.add(count, kind, size.linear)
	w.linear.replicated += count * projected * size.linear
	w.linear.replicatedParams += count * projected
	w.plain.replicated += count * (replicated - projected) * size.plain
	w.plain.replicatedParams += count * (replicated - projected)
	halves := 0.0
	if kind.Attention > 0 {
		halves++
	}
	if kind.Dense > 0 || kind.Experts > 0 {
		halves++
	}
	w.sums += count * halves
	if kind.Experts == 0 || kind.TopK == 0 {
		w.halves += count * halves
		return
	}
	w.expertLayers += count
	if kind.Attention == 0 {
		w.bare += count
	}
	w.experts = append(w.experts, expertWork{
		layers: count, experts: float64(kind.Experts), topK: float64(kind.TopK),
		missed: math.Log1p(-min(float64(kind.TopK)/float64(kind.Experts), nearlyOne)),
		bytes:  float64(kind.Expert) * size.expert, params: float64(kind.Expert),
	})
}

// nearlyOne keeps the logarithm finite if every token chooses every expert.
const nearlyOne = 1 - 1e-9

func (m *matrices) add(count float64, kind model.Layers, bytes float64) {
	split := count * float64(kind.Attention+kind.Dense)
	m.split += split * bytes
	m.splitParams += split
	m.keyValue += count * float64(kind.KeyValue) * bytes
	m.keyValueParams += count * float64(kind.KeyValue)
	m.kvHeads = max(m.kvHeads, kind.KVHeads)
}

// on returns the bytes and parameters on each of a number of GPUs.
func (m *matrices) on(tp float64) (bytes, params float64) {
	kv := 1 / tp
	if m.kvHeads > 0 {
		kv = max(kv, 1/float64(m.kvHeads))
	}
	return m.split/tp + m.keyValue*kv + m.replicated, m.splitParams/tp + m.keyValueParams*kv + m.replicatedParams
}

// hit returns how many different experts a number of tokens choose. Routers choose some experts more often than others.
// The model is a gamma distribution of popularity with variance skew around its mean. All tokens then miss an expert
// with the probability (1 + skew x)^(-1/skew), or exp(-x) without skew.
func (e *expertWork) hit(tokens, skew float64) float64 {
	if skew <= 0 {
		return -e.experts * math.Expm1(tokens*e.missed)
	}
	return -e.experts * math.Expm1(-math.Log1p(-skew*tokens*e.missed)/skew)
}

// addMixers prepares attention. It needs the caches.
func (w *work) addMixers(shape model.Shape, caches []cache) {
	// Each element of a key costs a multiplication and an addition, and so does each element of a value.
	pair := 2 * float64(shape.Heads) * float64(shape.HeadDim+shape.HeadDim)
	if shape.ValueDim > 0 {
		pair = 2 * float64(shape.Heads) * float64(shape.HeadDim+shape.ValueDim)
	}
	if mla := shape.MLA; mla != nil {
		pair = 2 * float64(shape.Heads) * float64(mla.NopeDim+mla.RopeDim+mla.ValueDim)
	}
	for _, c := range caches {
		m := mixer{cache: c}
		if c.state == 0 {
			m.pair = pair * float64(c.count)
		}
		m.addIndexer(&shape)
		w.mixers = append(w.mixers, m)
	}
}

// chosenTokens is the number of tokens in sparse attention: index_topk in the models' configurations.
const chosenTokens = 2048

// addIndexer limits the attention of a model with an indexer to the tokens it chooses. Such attention reads latent
// vectors as they are in the cache (flashmla_sparse in vLLM), not keys and values of each head.
func (m *mixer) addIndexer(shape *model.Shape) {
	mla := shape.MLA
	if mla == nil || mla.IndexHeads == 0 || m.cache.window > 0 || m.cache.state > 0 {
		return
	}
	m.chosen = chosenTokens
	if !mla.Direct {
		// The list of chosen tokens has one length for all queries (topk_tokens in vLLM's flashmla_sparse.py).
		m.fixed = true
		m.pair = 2 * float64(shape.Heads) * float64(2*mla.KVRank+mla.RopeDim) * float64(m.cache.count)
	}
	if m.cache.indexer > 0 {
		m.index = 2 * float64(mla.IndexHeads) * float64(mla.IndexDim) * float64(m.cache.count)
	}
}

// pairs returns the number of pairs of a query and an earlier key in a prompt.
func (m *mixer) pairs(tokens float64) float64 {
	window := max(float64(m.cache.window), m.chosen)
	switch {
	case window == 0 || tokens <= window:
		return tokens * tokens / 2
	case m.cache.chunked:
		return tokens * window / 2
	default:
		return tokens*window - window*window/2
	}
}

// read returns the bytes of the cache that one sequence of a length reads per token, on each of a number of GPUs. A
// state is read and written.
func (m *mixer) read(length float64, tp int, e elements) float64 {
	c := &m.cache
	if m.chosen > 0 {
		index := float64(c.indexer)
		return float64(c.count) * (min(length, m.chosen)*(c.perToken(tp, e)-index) + length*index)
	}
	if c.window > 0 {
		length = min(length, float64(c.window))
	}
	return float64(c.count) * (length*c.perToken(tp, e) + 2*c.state/float64(tp))
}

// held returns the bytes of the cache of one sequence of a length on each of a number of GPUs.
func (m *mixer) held(length float64, tp int, e elements) float64 {
	c := &m.cache
	if c.window > 0 {
		length = min(length, float64(c.window))
	}
	return float64(c.count) * (length*c.perToken(tp, e) + c.state/float64(tp))
}
