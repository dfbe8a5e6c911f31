// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import "github.com/modelberth/modelberth/pkg/model"

// Adapters are low-rank adapters (LoRA) on the GPUs. The engine reserves memory for a number of slots. Each slot holds
// an adapter of at most the given rank, and takes its memory even when empty.
//
// vLLM allocates two matrices for each linear layer and slot, before it measures the memory left for the KV cache: A of
// rank × input and B of output × rank, in the model's 16 bits. Tensor parallelism cuts B if it cuts the columns of the
// weight, and A if it cuts the rows. The other matrix is whole on every rank (create_lora_weights in
// vllm/lora/layers/base_linear.py, fused_moe.py for experts, vocab_parallel_embedding.py and logits_processor.py for
// the embedding and the output). vLLM wraps every linear layer and mixture of experts, not only those in the adapters
// (get_supported_lora_modules in vllm/lora/utils.py). llama.cpp loads the adapters' tensors beside the layers they
// change.
type Adapters struct {
	Slots, Rank int
}

// lowRank counts the numbers in the two matrices of an adapter of rank 1, over all linear layers of one model layer.
// whole counts those on every rank. split is divided like the weights, and keyValue like the key and value heads.
type lowRank struct {
	whole, split, keyValue float64
}

// lowRankOf counts the inputs and outputs of a layer's matrices. If one side of a matrix is as long as the model is
// wide, the other side is its number of parameters divided by that width.
func lowRankOf(shape model.Shape, l model.Layers) lowRank {
	hidden := float64(shape.Hidden)
	out := lowRank{}
	switch {
	case l.StateElements > 0:
		// These are the projections into and out of the mixer.
		out.whole, out.split = 2*hidden, float64(l.Attention)/hidden
	case l.Latent > 0:
		out = latentLowRank(shape)
	case l.Attention > 0:
		// These are the matrices of queries, keys, values and the output.
		out.whole, out.split, out.keyValue = 4*hidden, float64(l.Attention)/hidden, float64(l.KeyValue)/hidden
	}
	matrices := 3.0
	if shape.PlainMLP {
		matrices = 2
	}
	if l.DenseWidth > 0 {
		out.whole += matrices * hidden
		out.split += float64(l.Dense) / hidden
	}
	if l.Experts > 0 {
		out.whole += float64(l.Experts) * matrices * hidden
		out.split += float64(l.Experts) * matrices * float64(l.ExpertWidth)
	}
	return out
}

// latentLowRank is lowRankOf for latent attention. Its down-projections are whole on every rank.
func latentLowRank(shape model.Shape) lowRank {
	m, hidden, heads := shape.MLA, float64(shape.Hidden), float64(shape.Heads)
	out := lowRank{
		whole: hidden + 2*float64(m.KVRank) + float64(m.RopeDim) + 2*hidden,
		split: heads * float64(m.NopeDim+m.RopeDim+m.ValueDim),
	}
	if m.QRank > 0 {
		out.whole += 2 * float64(m.QRank)
	}
	if !m.Direct {
		out.split += heads * float64(m.NopeDim+m.ValueDim)
	}
	return out
}

// adapterBytes returns the bytes that each GPU of a stage reserves for adapters. It assumes that the stage's layers are
// like the mean of all layers.
func (m *Model) adapterBytes(s stage, tp int) float64 {
	asked, width := m.weights.Adapters, 0.0
	if asked.Slots <= 0 {
		return 0
	}
	for i := range m.kinds {
		kind := &m.kinds[i]
		width += float64(kind.count) * (kind.low.whole + kind.low.split/float64(tp) + kind.low.keyValue*kind.keyValueShare(tp))
	}
	width *= float64(s.layers) / float64(max(m.shape.Layers, 1))
	ends := float64(m.shape.Hidden + paddedVocab(m.shape.Vocab))
	if s.first {
		width += ends
	}
	if s.last {
		width += ends
	}
	return width * float64(asked.Slots) * float64(asked.Rank) * plainBytes
}

// Adapters returns the slots and the rank that NewModel got.
func (m *Model) Adapters() Adapters { return m.weights.Adapters }

// AdapterBytes returns the largest possible size of the adapters' files in bytes: every linear layer has an adapter.
func (m *Model) AdapterBytes() float64 {
	return m.adapterBytes(stage{layers: m.shape.Layers, pp: 1, first: true, last: true}, 1)
}
