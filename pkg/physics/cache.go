// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
)

// caching describes the caches of a model's layers.
type caching struct {
	// caches are the kinds of KV cache, those with the most bytes first.
	caches []cache
	// uniform is set if every cache keeps every token. Otherwise, group is the number of layers in a group.
	uniform bool
	group   int
}

// cache describes the cache of one sequence in the layers of one kind.
type cache struct {
	// cacheKind holds the properties that layers of a kind share.
	cacheKind
	// count is the number of layers. vLLM divides them into groups of caching.group layers each.
	count, groups int
}

type cacheKind struct {
	// heads are split over GPUs; each has elements numbers per token. latent elements and the indexer's bytes are not
	// split.
	heads, elements, latent, indexer int
	// window limits the kept tokens. chunked: the window starts anew instead of sliding.
	window  int
	chunked bool
	// state is the bytes of a sequence's state, whatever its length. It is split.
	state float64
}

// addCache adds the caches of the layers of one kind.
func (m *Model) addCache(l model.Layers) {
	kind := cacheKind{
		heads: l.KVHeads, elements: l.HeadElements, latent: l.Latent, indexer: l.IndexBytes, window: l.Window, chunked: l.Chunked,
		state: float64(l.StateElements)*float64(l.StateBytes) + float64(l.ConvElements)*convBytes,
	}
	if kind.heads*kind.elements == 0 && kind.latent == 0 && kind.state == 0 {
		return
	}
	for i := range m.caches {
		if m.caches[i].cacheKind == kind {
			m.caches[i].count += l.Count
			return
		}
	}
	m.caches = append(m.caches, cache{cacheKind: kind, count: l.Count})
}

const (
	// convBytes is the size of an element of a convolution's state.
	convBytes = 2
	// scaleBytes is the size of a 32-bit scale.
	scaleBytes = 4
)

// groupCaches divides the layers into groups as vLLM does, so that all groups have one size and share one pool of
// blocks. The size is the number of layers of the rarest kind, or of the most frequent kind if that is not much larger
// (_get_kv_cache_groups_uniform_page_size in vllm/v1/core/kv_cache_utils.py).
func (m *Model) groupCaches() {
	slices.SortStableFunc(m.caches, func(a, b cache) int {
		return cmp.Or(cmp.Compare(b.cost(), a.cost()), cmp.Compare(b.state, a.state))
	})
	m.uniform = true
	least, most := math.MaxInt, 0
	for i := range m.caches {
		c := &m.caches[i]
		m.uniform = m.uniform && c.window == 0 && c.state == 0
		m.states = m.states || c.state > 0
		least, most = min(least, c.count), max(most, c.count)
	}
	m.group = least
	if float64(most) < notMuchLarger*float64(least) {
		m.group = most
	}
	for i := range m.caches {
		m.caches[i].groups = ceilDiv(m.caches[i].count, m.group)
	}
}

// notMuchLarger is the ratio of the most frequent kind of cache to the rarest below which vLLM pads the rarest.
const notMuchLarger = 1.5

// cost sorts the kinds of cache: a kind for all tokens comes before a kind for some.
func (c *cache) cost() float64 {
	bytes := c.perToken(1, elements{each: plainBytes, latent: plainBytes})
	if c.window > 0 {
		bytes *= 1e-6 * float64(c.window)
	}
	return bytes
}

// elements are the sizes of a cache's elements in bytes.
type elements struct {
	// each is the size of an element of a head, latent of an element of a latent vector, and perHead of the scale of
	// each key and each value of a head.
	each, latent, perHead float64
	// fixed is the size of a whole latent vector; if positive, it replaces latent.
	fixed float64
}

// elementsOf returns the sizes for a type of KV cache, as vLLM names it.
func (m *Model) elementsOf(kvType string) elements {
	size := float64(plainBytes)
	perHead := 0.0
	switch {
	case strings.HasPrefix(kvType, "fp8"), strings.HasPrefix(kvType, "int8"):
		size = 1
		if strings.HasSuffix(kvType, "_per_token_head") {
			perHead = scaleBytes
		}
	case kvType == "nvfp4":
		size = nvfp4Bytes
	case kvType == "float32":
		size = 4
	}
	out := elements{each: size, latent: size, perHead: perHead}
	if mla := m.shape.MLA; mla != nil && size == 1 && (mla.IndexHeads > 0 || kvType == "fp8_ds_mla") {
		out.fixed = float64(mla.KVRank)*(1+scaleBytes/scaledElements) + plainBytes*float64(mla.RopeDim)
	}
	return out
}

const (
	// nvfp4Bytes is the size of an element: 4 bits, and an 8-bit scale for every 16 elements.
	nvfp4Bytes = 0.5625
	// scaledElements is how many elements share one scale in the 8-bit cache of sparse attention (fp8_ds_mla). The
	// rotary part keeps 16 bits.
	scaledElements = 128.0
)

// perToken returns the bytes of one token in one layer on each of tp GPUs. A GPU has whole heads, at least one.
func (c *cache) perToken(tp int, e elements) float64 {
	heads := float64(0)
	if c.heads > 0 {
		heads = float64(ceilDiv(c.heads, tp))
	}
	latent := float64(c.latent) * e.latent
	if e.fixed > 0 && c.latent > 0 {
		latent = e.fixed
	}
	return heads*(float64(c.elements)*e.each+2*e.perHead) + latent + float64(c.indexer)
}

// pool describes how a GPU's KV cache is divided into blocks. A block has memory for all layers of a group.
type pool struct {
	m *Model
	// tokens is the number of tokens in a block of the kind with the most bytes per token. perToken is this number of
	// bytes, and page the bytes of one layer in a block. If all layers keep every token, there is one group of all
	// layers, and shared is the number of GPUs that hold blocks of different tokens.
	tokens, shared int
	perToken, page float64
	tp             int
	elements       elements
}

// poolOf describes the KV cache of a GPU. If layers keep a state, a block is at least as large as the state.
func (m *Model) poolOf(l *Layout, kvType string, blockTokens int) pool {
	tp := max(l.TP, 1)
	p := pool{m: m, tokens: max(blockTokens, 1), shared: 1, tp: tp, elements: m.elementsOf(kvType)}
	if m.uniform {
		p.shared = max(l.CP, 1)
		return p
	}
	state := 0.0
	for i := range m.caches {
		c := &m.caches[i]
		p.perToken = max(p.perToken, c.perToken(tp, p.elements))
		state = max(state, math.Ceil(c.state/float64(tp)))
	}
	p.page = state
	if p.perToken > 0 {
		if smallest := p.perToken * float64(p.tokens); state > smallest {
			p.tokens *= int(math.Ceil(state / smallest))
		}
		p.page = p.perToken * float64(p.tokens)
	}
	return p
}

// block returns the bytes of a block on each GPU of a stage.
func (p *pool) block(s stage) float64 {
	all := max(p.m.shape.Layers, 1)
	if !p.m.uniform {
		return p.page * float64(min(ceilDiv(p.m.group*s.layers, all), s.layers))
	}
	bytes, left := 0.0, s.layers
	for i := range p.m.caches {
		c := &p.m.caches[i]
		layers := min(ceilDiv(c.count*s.layers, all), left)
		left -= layers
		bytes += float64(layers) * c.perToken(p.tp, p.elements)
	}
	return bytes * float64(p.tokens)
}

// blockTokens returns the number of tokens in a block of one kind. Kinds with fewer bytes per token have a whole
// multiple of p.tokens.
func (p *pool) blockTokens(c *cache) int {
	if c.state > 0 {
		return math.MaxInt32
	}
	bytes := c.perToken(p.tp, p.elements)
	if p.m.uniform || bytes <= 0 {
		return p.tokens
	}
	return p.tokens * max(int(p.perToken/bytes), 1)
}

// atOnce returns the largest number of blocks that one sequence takes while the engine computes batch tokens of it. The
// sequence then holds the batch beside its window (SlidingWindowSpec and ChunkedLocalAttentionSpec in
// vllm/v1/kv_cache_interface.py).
func (p *pool) atOnce(length, batch int) int {
	if p.m.uniform {
		return ceilDiv(length, p.tokens*p.shared)
	}
	blocks := 0
	for i := range p.m.caches {
		blocks += p.m.caches[i].groups * p.peak(&p.m.caches[i], length, batch)
	}
	return blocks
}

func (p *pool) peak(c *cache, length, batch int) int {
	block := p.blockTokens(c)
	switch {
	case c.state > 0:
		return 1
	case c.chunked && c.window > 0:
		return ceilDiv(min(c.window+batch, length), block)
	case c.window > 0:
		return ceilDiv(min(c.window-1+batch, length), block) + 1
	default:
		return ceilDiv(length, block)
	}
}

// together returns the number of blocks that several sequences of a length take. Each holds its window, but the engine
// computes at most batch tokens of all of them at once.
func (p *pool) together(sequences, length, batch int) float64 {
	if p.m.uniform {
		return float64(sequences) * float64(ceilDiv(length, p.tokens*p.shared))
	}
	blocks := 0.0
	for i := range p.m.caches {
		c := &p.m.caches[i]
		steady, peak := p.peak(c, length, 1), p.peak(c, length, batch)
		extra := min(float64(sequences)*float64(peak-steady), float64(ceilDiv(batch, p.blockTokens(c))))
		blocks += float64(c.groups) * (float64(sequences)*float64(steady) + extra)
	}
	return blocks
}

// KVNeed returns how many GiB of KV cache the fullest GPU of a replica needs for sequences of a length. It is at least
// the engine's own minimum, one sequence of MaxModelLen.
func (m *Model) KVNeed(l Layout, s *Serving, length, sequences int, e *catalog.Engine) float64 {
	serving := s.settled(nil, &e.Profile)
	p := m.poolOf(&l, serving.KVType, e.Profile.BlockTokens)
	blocks := max(p.together(max(sequences, 0), max(length, 0), serving.MaxBatchedTokens),
		float64(p.atOnce(serving.MaxModelLen, serving.MaxBatchedTokens)))
	most := 0.0
	all, count := m.stages(l.PP)
	for _, st := range all[:count] {
		most = max(most, p.block(st))
	}
	return blocks * most / gib
}

// KVBytesPerToken returns the bytes of one token on each GPU of a replica's fullest stage. It counts only layers that
// keep every token.
func (m *Model) KVBytesPerToken(l Layout, kvType string) float64 {
	e := m.elementsOf(kvType)
	bytes := 0.0
	for i := range m.caches {
		if c := &m.caches[i]; c.window == 0 {
			bytes += float64(ceilDiv(c.count, max(l.PP, 1))) * c.perToken(max(l.TP, 1), e)
		}
	}
	return bytes
}
