// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package model

// Layers is a number of equal layers. It has their parameters, by the treatment in tensor parallelism, and the values
// that they keep for each sequence.
type Layers struct {
	Count int
	// First: the layers are at the model's beginning. All others alternate evenly.
	First bool

	// Attention parameters are split by query heads (or by state-space heads), KeyValue parameters by key and value
	// heads, and Dense parameters (MLPs and shared experts) by columns. Replicated parameters are on every rank: norms,
	// routers, down-projections of latent attention.
	Attention, KeyValue, Dense, Replicated int64
	// Expert is the number of parameters of one expert. A layer has Experts of them, and TopK work on each token.
	Expert        int64
	Experts, TopK int
	// DenseWidth and ExpertWidth are the dimensions that tensor parallelism cuts.
	DenseWidth, ExpertWidth int

	// Each of KVHeads keeps HeadElements values of every token, split by heads. Every rank keeps Latent values of every
	// token.
	KVHeads, HeadElements, Latent int
	// IndexBytes is what the indexer of sparse attention keeps of every token, on each rank.
	IndexBytes int
	// Window limits the kept tokens; 0 means no limit. Chunked: the window starts anew at each chunk instead of
	// sliding.
	Window  int
	Chunked bool
	// StateElements and ConvElements are the values kept of each sequence whatever its length, split by heads.
	// StateBytes is the size of a StateElement in bytes. A ConvElement has 2 bytes.
	StateElements, ConvElements int64
	StateBytes                  int
}

// Params returns the parameters of one layer.
func (l Layers) Params() int64 {
	return l.Attention + l.KeyValue + l.Dense + l.Replicated + int64(l.Experts)*l.Expert
}

// ActiveParams returns the parameters of one layer that work on a token.
func (l Layers) ActiveParams() int64 {
	return l.Attention + l.KeyValue + l.Dense + l.Replicated + int64(l.TopK)*l.Expert
}

// sparse reports whether latent attention has an indexer that chooses the tokens to attend to.
func (s Shape) sparse() bool {
	return s.MLA != nil && s.MLA.IndexHeads > 0
}

// latentBytes returns the bytes that latent attention keeps of a token in a layer, for elements of a given size. If
// elements are smaller than 2 bytes, sparse attention keeps the rotary part at 16 bits, and a 32-bit scale for every
// 128 elements of the rest.
func (s Shape) latentBytes(l Layers, elementBytes float64) float64 {
	if !s.sparse() || elementBytes >= 2 {
		return float64(l.Latent) * elementBytes
	}
	rank := float64(s.MLA.KVRank)
	return rank*elementBytes + rank/32 + 2*float64(s.MLA.RopeDim)
}

// LayerKinds returns the kinds of layers of a shape. The sum of their counts is Layers.
func (s Shape) LayerKinds() []Layers {
	pattern := s.Pattern
	if len(pattern) == 0 {
		pattern = []LayerGroup{{Count: s.Layers, Mixer: MixerFull}}
	}
	var out []Layers
	dense := 0
	if s.MoE != nil {
		dense = s.MoE.DenseLayers
	}
	for _, g := range pattern {
		mixed := s.mixer(g)
		for _, part := range s.feedForwards(g, &dense) {
			kind := mixed
			kind.Count, kind.First = part.Count, part.First
			kind.Dense, kind.DenseWidth = part.Dense, part.DenseWidth
			kind.Expert, kind.Experts, kind.TopK, kind.ExpertWidth = part.Expert, part.Experts, part.TopK, part.ExpertWidth
			kind.Replicated += part.Replicated
			out = append(out, kind)
		}
	}
	return out
}

// mixer counts the parameters of a layer's token mixer and norms.
func (s Shape) mixer(g LayerGroup) Layers {
	norms := s.Norms
	if norms == 0 {
		norms = 2
	}
	if g.Mixer == MixerNone || g.FeedForward == FeedForwardNone {
		norms = 1
	}
	out := Layers{Replicated: int64(norms) * int64(s.Hidden)}
	switch g.Mixer {
	case MixerNone:
	case MixerMamba2:
		s.mamba(*g.State, &out)
	case MixerDeltaNet:
		s.deltaNet(*g.State, &out)
	case MixerFull, MixerWindow, MixerChunk:
		s.attention(g, &out)
	}
	return out
}

func (s Shape) attention(g LayerGroup, out *Layers) {
	if g.Mixer != MixerFull {
		out.Window, out.Chunked = g.Window, g.Mixer == MixerChunk
	}
	if s.MLA != nil {
		s.latentAttention(g, out)
		return
	}
	kvHeads, headDim := s.KVHeads, s.HeadDim
	if g.KVHeads > 0 {
		kvHeads = g.KVHeads
	}
	if g.HeadDim > 0 {
		headDim = g.HeadDim
	}
	valueDim := headDim
	if s.ValueDim > 0 {
		valueDim = s.ValueDim
	}
	hidden, heads := int64(s.Hidden), int64(s.Heads)
	query, value := heads*int64(headDim), heads*int64(valueDim)
	out.Attention = hidden*query + value*hidden
	if s.GatedAttention {
		out.Attention += hidden * query
	}
	if s.QKVBias {
		out.Attention += query
	}
	if s.OutputBias {
		out.Replicated += hidden
	}
	if s.QKNorm {
		out.Replicated += int64(headDim)
	}
	if s.WideQKNorm {
		out.Replicated += query
	}
	if s.Sinks {
		out.Attention += heads
	}
	s.keysAndValues(g, kvHeads, headDim, valueDim, out)
}

// keysAndValues counts the projections of keys and values, and the values kept of each token.
func (s Shape) keysAndValues(g LayerGroup, kvHeads, headDim, valueDim int, out *Layers) {
	if !g.ReusedKV {
		out.KVHeads, out.HeadElements = kvHeads, headDim+valueDim
	}
	columns := int64(kvHeads) * int64(headDim+valueDim)
	if g.KeysAreValues {
		columns = int64(kvHeads) * int64(headDim)
	}
	out.KeyValue = int64(s.Hidden) * columns
	if s.QKVBias {
		out.KeyValue += columns
	}
	if s.QKNorm {
		out.Replicated += int64(headDim)
	}
	if s.WideQKNorm {
		out.Replicated += int64(kvHeads) * int64(headDim)
	}
}

func (s Shape) latentAttention(g LayerGroup, out *Layers) {
	m := s.MLA
	hidden, heads := int64(s.Hidden), int64(s.Heads)
	rank, rope, nope := int64(m.KVRank), int64(m.RopeDim), int64(m.NopeDim)
	value, qRank := int64(m.ValueDim), int64(m.QRank)
	out.Replicated += hidden*(rank+rope) + rank
	if qRank > 0 {
		out.Replicated += hidden*qRank + qRank
		out.Attention += qRank * heads * (nope + rope)
	} else {
		out.Attention += hidden * heads * (nope + rope)
	}
	if !m.Direct {
		out.Attention += rank * heads * (nope + value)
	}
	if m.OutputRank > 0 {
		out.Attention += heads*value*int64(m.OutputRank) + int64(m.OutputGroups)*int64(m.OutputRank)*hidden
	} else {
		out.Attention += heads * value * hidden
	}
	if m.IndexHeads > 0 && g.Mixer == MixerFull && !g.ReusedIndex {
		index := int64(m.IndexHeads) * int64(m.IndexDim)
		out.Replicated += qRank*index + hidden*int64(m.IndexDim) + 2*int64(m.IndexDim) + hidden*int64(m.IndexHeads)
		out.IndexBytes = m.IndexDim + 4 // 8-bit keys and a 32-bit scale
	}
	out.Latent = m.KVRank + m.RopeDim
}

// mamba counts the parameters and the state of a Mamba 2 mixer.
func (s Shape) mamba(st State, out *Layers) {
	hidden, heads := int64(s.Hidden), int64(st.ValueHeads)
	inner := heads * int64(st.ValueDim)
	groups := 2 * int64(st.KeyHeads) * int64(st.KeyDim)
	convolved := inner + groups
	out.Attention = hidden*(inner+convolved+heads) + convolved*int64(st.Conv+1) + 3*heads + inner + inner*hidden
	out.ConvElements = int64(st.Conv-1) * convolved
	out.StateElements = inner * int64(st.KeyDim)
	out.StateBytes = stateBytes(st)
}

// deltaNet counts the parameters and the state of a gated delta net.
func (s Shape) deltaNet(st State, out *Layers) {
	hidden, keys, values := int64(s.Hidden), int64(st.KeyHeads)*int64(st.KeyDim), int64(st.ValueHeads)*int64(st.ValueDim)
	convolved := 2*keys + values
	out.Attention = hidden*(2*keys+2*values+2*int64(st.ValueHeads)) + convolved*int64(st.Conv) + 2*int64(st.ValueHeads) +
		int64(st.ValueDim) + values*hidden
	out.ConvElements = int64(st.Conv-1) * convolved
	out.StateElements = values * int64(st.KeyDim)
	out.StateBytes = stateBytes(st)
}

func stateBytes(st State) int {
	if st.Bytes > 0 {
		return st.Bytes
	}
	return 4
}

// feedForwards splits a group by its feed-forward parts. dense is how many dense layers of the model's beginning are
// left; feedForwards assigns them and lowers it.
func (s Shape) feedForwards(g LayerGroup, dense *int) []Layers {
	mlp := s.mlp(g)
	switch {
	case g.FeedForward == FeedForwardNone:
		return []Layers{{Count: g.Count}}
	case g.FeedForward == FeedForwardDense, s.MoE == nil:
		mlp.Count = g.Count
		return []Layers{mlp}
	}
	experts := s.experts()
	var out []Layers
	rest := g.Count
	if first := min(*dense, rest); first > 0 && g.FeedForward == FeedForwardDefault {
		*dense -= first
		rest -= first
		mlp.Count, mlp.First = first, true
		out = append(out, mlp)
	}
	if every := s.MoE.Every; every > 1 && g.FeedForward == FeedForwardDefault {
		mlp.Count, mlp.First = rest-rest/every, false
		rest /= every
		out = append(out, mlp)
	}
	if rest > 0 {
		experts.Count = rest
		out = append(out, experts)
	}
	return out
}

// mlp counts the dense MLP of a layer in a group.
func (s Shape) mlp(g LayerGroup) Layers {
	width := s.Intermediate
	if g.Intermediate > 0 {
		width = g.Intermediate
	}
	return Layers{Dense: s.mlpParams(s.Hidden, width), DenseWidth: width}
}

func (s Shape) mlpParams(outer, inner int) int64 {
	matrices := int64(3)
	if s.PlainMLP {
		matrices = 2
	}
	return matrices * int64(outer) * int64(inner)
}

// experts counts the mixture of experts of a layer, with its router.
func (s Shape) experts() Layers {
	m := s.MoE
	outer := s.Hidden
	out := Layers{
		Dense: s.mlpParams(s.Hidden, m.SharedIntermediate), DenseWidth: m.SharedIntermediate,
		Replicated: int64(s.Hidden) * int64(m.Experts), Experts: m.Experts, TopK: m.TopK, ExpertWidth: m.Intermediate,
	}
	if m.SharedGate {
		out.Replicated += int64(s.Hidden)
	}
	if m.LatentDim > 0 {
		outer = m.LatentDim
		out.Replicated += 2 * int64(s.Hidden) * int64(m.LatentDim)
	}
	out.Expert = s.mlpParams(outer, m.Intermediate)
	if m.Bias {
		out.Expert += 2*int64(m.Intermediate) + int64(outer)
	}
	if m.Bias || m.RouterBias {
		out.Replicated += int64(m.Experts)
	}
	return out
}

// Params returns the number of parameters of the whole model, with ExtraParams.
func (s Shape) Params() int64 {
	return s.count(Layers.Params)
}

// ActiveParams returns the number of parameters that the model uses for one token. It counts the embeddings whole.
func (s Shape) ActiveParams() int64 {
	return s.count(Layers.ActiveParams)
}

func (s Shape) count(params func(Layers) int64) int64 {
	total := s.EmbeddingParams() + int64(s.Hidden) + s.ExtraParams
	if !s.Tied {
		total += s.EmbeddingParams()
	}
	for _, l := range s.LayerKinds() {
		total += int64(l.Count) * params(l)
	}
	return total
}

// KVBytes returns the bytes of one token in the KV cache on one GPU, for elements of a given size. It counts only
// layers that keep every token, not layers with a window or a state.
func (s Shape) KVBytes(elementBytes float64) float64 {
	return s.KVBytesOnRank(1, elementBytes)
}

// KVBytesOnRank is KVBytes for each of tensorParallel ranks. A rank has whole heads, at least one. Every rank keeps all
// of latent attention.
func (s Shape) KVBytesOnRank(tensorParallel int, elementBytes float64) float64 {
	var bytes float64
	for _, l := range s.LayerKinds() {
		if l.Window == 0 {
			bytes += float64(l.Count) * s.LayerKVBytes(l, tensorParallel, elementBytes)
		}
	}
	return bytes
}

// LayerKVBytes returns the bytes that one layer keeps of a token on each of tensorParallel ranks.
func (s Shape) LayerKVBytes(l Layers, tensorParallel int, elementBytes float64) float64 {
	heads := 0
	if l.KVHeads > 0 {
		heads = (l.KVHeads + tensorParallel - 1) / tensorParallel
	}
	bytes := float64(heads*l.HeadElements)*elementBytes + float64(l.IndexBytes)
	if l.Latent > 0 {
		bytes += s.latentBytes(l, elementBytes)
	}
	return bytes
}
