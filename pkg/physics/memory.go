// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Memory predicts how an engine with tensor parallelism divides a GPU's memory when it starts. The KV cache gets what
// the weights and the profile run leave of the engine's share. The budget is for the GPU with the least KV cache.
// Tokens and concurrency are for the stage with the fewest blocks.
func Memory(m *Model, gpu *sku.GPU, l Layout, s *Serving, e *catalog.Engine) Budget {
	law := lawOf(e, s.Version)
	serving := s.settled(gpu, law)
	tp := max(l.TP, 1)
	forward := m.forward(&l, &serving, law)
	sampled := m.sampled(&serving, law)
	workspace := m.workspace(&l, &serving, law)
	images := m.images(&l, &serving, law)
	base := Budget{Total: gpu.MemoryGiB, NonTorch: nonTorch(&l, law.NonTorchGiB), Graphs: m.graphs(&serving, e), Basis: m.basis(law.Basis)}
	if m.states || m.shape.ExtraParams > 0 || isNewer(e, serving.Version) {
		base.Basis = v1beta1.BasisEstimated // no log of such a model or release confirms the law
	}
	p := m.poolOf(&l, serving.KVType, law.BlockTokens)
	each := p.atOnce(serving.MaxModelLen, serving.MaxBatchedTokens)
	out, fewest := Budget{}, math.Inf(1)
	all, count := m.stages(l.PP)
	for i, st := range all[:count] {
		b := base
		b.Weights = (m.stageWeights(st, l.cut())*law.WeightFactor+m.absorbed(st, tp))/gib + law.TablesGiB
		b.Activation = max(forward, law.FixedGiB) + workspace
		if st.last {
			b.Activation = max(forward, sampled) + workspace
		}
		if st.first {
			b.Weights += images.weights
			b.Activation = max(b.Activation, images.peak) + images.kept
		}
		// Each stage captures graphs of its own layers only.
		b.Graphs *= float64(st.layers) / float64(max(m.shape.Layers, 1))
		b.Adapters = m.adapterBytes(st, tp) / gib
		b.KVCache = b.Total*serving.Utilization - b.Weights - b.Adapters - b.Activation - b.NonTorch - b.Graphs
		if i == 0 || b.KVCache < out.KVCache {
			out = b
		}
		fewest = min(fewest, b.KVCache*gib/max(p.block(st), 1))
	}
	out.KVTokens, out.MaxConcurrency = p.capacity(math.Floor(max(fewest, 0)), each, serving.MaxModelLen)
	return out
}

// capacity returns the figures that the engine logs for a number of blocks: each sequence takes each blocks and has
// length tokens.
func (p *pool) capacity(blocks float64, each, length int) (tokens int, concurrency float64) {
	if each > 0 {
		concurrency = blocks / float64(each)
	}
	held := concurrency * float64(length)
	if p.m.uniform {
		held = blocks * float64(p.tokens*p.shared)
	}
	return int(min(held, math.MaxInt32)), concurrency
}

// Settled returns the settings with the engine's defaults for a GPU in place of zero values.
func (s Serving) Settled(gpu *sku.GPU, e *catalog.Engine) Serving {
	return s.settled(gpu, &e.Profile)
}

// settled is Settled with the memory law instead of its engine. If gpu is nil, it uses the defaults of a large GPU.
func (s *Serving) settled(gpu *sku.GPU, law *catalog.MemoryProfile) Serving {
	out := *s
	out.MaxModelLen = max(out.MaxModelLen, 1)
	if out.Utilization == 0 {
		out.Utilization = law.DefaultUsed
		if s.Version != "" && older(s.Version, law.UsedSince) {
			out.Utilization = law.FormerUsed
		}
	}
	if out.MaxNumSeqs <= 0 || out.MaxBatchedTokens <= 0 {
		class, memory := "", math.Inf(1)
		if gpu != nil {
			class, memory = gpu.Kind(), gpu.MemoryGiB
		}
		sequences, batchTokens := law.Default(class, memory)
		if out.MaxNumSeqs <= 0 {
			out.MaxNumSeqs = sequences
		}
		if out.MaxBatchedTokens <= 0 {
			out.MaxBatchedTokens = batchTokens
		}
	}
	out.MaxNumSeqs, out.MaxBatchedTokens = max(out.MaxNumSeqs, 1), max(out.MaxBatchedTokens, 1)
	return out
}

// absorbed returns the bytes of the up-projections of latent attention on each GPU of a stage. The engine keeps a
// second copy of them in 16 bits, one for queries and one for values (process_weights_after_loading in
// vllm/model_executor/layers/attention/mla_attention.py).
func (m *Model) absorbed(s stage, tp int) float64 {
	mla := m.shape.MLA
	if mla == nil || mla.Direct {
		return 0
	}
	heads := float64(ceilDiv(m.shape.Heads, tp))
	return float64(s.layers) * heads * float64(mla.KVRank) * float64(mla.NopeDim+mla.ValueDim) * plainBytes
}

// lawOf returns an engine's memory law for a release. An empty version means the release in the catalogue.
func lawOf(e *catalog.Engine, version string) *catalog.MemoryProfile {
	law, version := &e.Profile, cmp.Or(version, e.Version)
	copied := false
	for i := range e.Profile.Former {
		former := &e.Profile.Former[i]
		if !older(version, former.Until) {
			break
		}
		if !copied {
			law, copied = new(e.Profile), true
		}
		if former.SamplerCopies > 0 {
			law.SamplerCopies = former.SamplerCopies
		}
		if former.NonTorchGiB != nil {
			law.NonTorchGiB = *former.NonTorchGiB
		}
		if former.NoWorkspace {
			law.Workspace = nil
		}
	}
	return law
}

// isNewer reports whether a release is newer than the logged starts that the law is fitted to. An empty version means
// the catalogue's release.
func isNewer(e *catalog.Engine, version string) bool {
	until := e.Profile.MeasuredUntil
	return until != "" && !older(cmp.Or(version, e.Version), until)
}

// forward returns the peak memory of a batch in the widest layer, in GiB: copies of the hidden states, and in the MLP
// both halves and their product. In a pipeline, the stages pass on two copies more.
func (m *Model) forward(l *Layout, s *Serving, law *catalog.MemoryProfile) float64 {
	hidden, tp := float64(m.shape.Hidden), max(l.TP, 1)
	wide := 0.0
	for i := range m.kinds {
		kind := &m.kinds[i]
		width := (m.halves()+1)*float64(kind.dense)/float64(tp) + law.ForwardCopies*hidden
		if law.Workspace == nil {
			width += m.routed(kind, l)
		}
		wide = max(wide, width)
	}
	if l.PP > 1 {
		wide += 2 * hidden
	}
	peak := float64(s.MaxBatchedTokens) * wide * plainBytes
	if mla := m.shape.MLA; mla != nil && !mla.Direct && mla.IndexHeads == 0 {
		// Sparse attention is excluded, because it reads the latent vectors as they are.
		heads := float64(ceilDiv(m.shape.Heads, tp))
		peak += float64(latentTokens(s, law)) * heads * float64(mla.NopeDim+mla.ValueDim) * plainBytes
	}
	return peak / gib
}

// workspace returns the memory that a mixture's kernels take beside the peak of a batch, in GiB.
func (m *Model) workspace(l *Layout, s *Serving, law *catalog.MemoryProfile) float64 {
	if law.Workspace == nil {
		return 0
	}
	wide := 0.0
	for i := range m.kinds {
		wide = max(wide, m.routed(&m.kinds[i], l))
	}
	if wide == 0 || slices.Contains(law.Workspace.Except, m.weights.Format.Name) {
		return 0
	}
	return float64(s.MaxBatchedTokens) * wide * plainBytes / gib
}

// routed returns how many elements a layer's experts compute for a token: the larger one of an MLP's input and first
// product, and of its second input and output. With whole experts, a common step has the batches of all ranks.
func (m *Model) routed(kind *layerBytes, layout *Layout) float64 {
	if kind.topK == 0 {
		return 0
	}
	width, outer := float64(kind.expert), float64(m.shape.Hidden)
	if !layout.EP {
		width /= float64(max(layout.TP, 1))
	}
	if m.shape.MoE.LatentDim > 0 {
		outer = float64(m.shape.MoE.LatentDim)
	}
	return float64(layout.ranks()) * float64(kind.topK) * (max(m.halves()*width, outer) + max(width, outer))
}

// halves returns the number of halves of an MLP's first matrix: two if the MLP is gated.
func (m *Model) halves() float64 {
	if m.shape.PlainMLP {
		return 1
	}
	return 2
}

// sampled returns the peak memory of sampling in GiB: a row of logits for every sequence.
func (m *Model) sampled(s *Serving, law *catalog.MemoryProfile) float64 {
	rows := float64(min(s.MaxNumSeqs, s.MaxBatchedTokens))
	batch := law.BatchCopies * float64(s.MaxBatchedTokens) * float64(m.shape.Hidden) * plainBytes
	return (law.SamplerCopies*rows*float64(m.shape.Vocab)*logitBytes+batch)/gib + law.FixedGiB
}

// latentTokens returns how many tokens of earlier context are expanded to keys and values at once: enough for eight
// whole sequences or four blocks of each, up to a limit (determine_chunked_prefill_workspace_size in
// vllm/model_executor/layers/attention/mla_attention.py).
func latentTokens(s *Serving, law *catalog.MemoryProfile) int {
	blocks := s.MaxNumSeqs * law.BlockTokens
	return max(min(max(8*s.MaxModelLen, 4*blocks), law.LatentTokens), blocks)
}

// logitBytes is the size of a logit in f32.
const logitBytes = 4

// nonTorch returns the memory of libraries on a GPU, in GiB.
func nonTorch(l *Layout, law catalog.NonTorch) float64 {
	group := l.group()
	linked := l.LinkedGPUs >= group
	switch {
	case group <= 1:
		return law.Single // stages sum nothing: 0.07 GiB with two and four of them (v0.19, source of row 60)
	case group > 2 && linked:
		doublings := float64(bits.Len(uint(group-1)) - 1)
		return law.Pair + (law.Group-law.Pair)*doublings
	case group == 2 && linked:
		return law.Pair
	case l.Nodes > 1:
		return max(law.Pair, law.PCIe)
	default:
		return law.PCIe
	}
}

// graphs returns the memory of CUDA graphs that counts in the engine's share, in GiB.
func (m *Model) graphs(s *Serving, e *catalog.Engine) float64 {
	if version := cmp.Or(s.Version, e.Version); s.Eager || older(version, e.Profile.GraphsSince) {
		return 0
	}
	for i := range e.Profile.Graphs {
		step := &e.Profile.Graphs[i]
		if m.captures(step) {
			if m.weights.Adapters.Slots > 0 {
				return 2 * step.GiB // one set with adapters and one without (cudagraph_specialize_lora)
			}
			return step.GiB
		}
	}
	return 0
}

// captures reports whether a step of the table of CUDA graphs applies to the model.
func (m *Model) captures(step *catalog.GraphStep) bool {
	return (step.ParamsB == 0 || m.params <= step.ParamsB) && (!step.States || m.states) && (!step.Experts || m.experts) &&
		(len(step.Formats) == 0 || slices.Contains(step.Formats, m.weights.Format.Name))
}
