// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"math"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// LayerSplit predicts the memory of the fullest of several GPUs with total GiB each, for an engine that gives each GPU
// a run of whole layers and allocates the KV cache of all its sequences when it starts. Budget.KVCache is the size of
// that cache: the model fits if the parts of the budget do not exceed Total.
//
// llama.cpp gives GPU i the layers for which floor(layer * gpus / (layers + 1)) = i. The output layer counts as the
// last one. The token embedding stays in the host's memory (llama_model::load_tensors in src/llama-model.cpp).
func (m *Model) LayerSplit(total float64, gpus, length, sequences int, law *catalog.EngineMemory) Budget {
	tokens := float64(roundUp(length, law.ContextMultiple)) * float64(sequences)
	layerWeights, outputWeights := m.layerSplitWeights()
	layerKV := m.shape.KVBytes(float64(law.KVBytes)) / float64(m.shape.Layers) * tokens
	fullest, most := Budget{}, math.Inf(-1)
	for gpu := range gpus {
		layers := float64(layersOn(gpu, gpus, m.shape.Layers))
		last := gpu == gpus-1
		weights := layers * layerWeights
		if last {
			weights += outputWeights
		}
		b := Budget{
			Total:      total,
			Weights:    toGiB(weights),
			KVCache:    toGiB(layers * layerKV),
			Activation: toGiB(law.ReserveGiB*gib+m.buffers(tokens, gpus, last, law)) - law.ReserveGiB,
			NonTorch:   law.ReserveGiB,
			Adapters:   toGiB(m.adapterBytes(stage{layers: int(layers), last: last}, 1)),
			KVTokens:   int(min(tokens, math.MaxInt32)),
			Basis:      m.basis(law.Basis),
		}
		b.MaxConcurrency = float64(sequences)
		if need := b.Weights + b.KVCache + b.Activation + b.NonTorch + b.Adapters; need > most {
			fullest, most = b, need
		}
	}
	return fullest
}

// layerSplitWeights returns the bytes on a GPU of one layer and of the output layer.
//
// If the element size of the file is known, and the file is large enough for two matrices of the embedding's size, one
// of them is the token embedding and stays on the host. Otherwise all bytes of the file count as on the GPUs.
func (m *Model) layerSplitWeights() (layer, output float64) {
	embedding := float64(m.shape.EmbeddingParams())
	file := float64(m.weights.Bytes)
	if file == 0 {
		file = float64(m.shape.Params()) * m.weights.Format.BytesPerParam
	}
	onGPUs := file
	if size := m.elementBytes(); size > 0 {
		output = embedding * size
		if file >= m.layerParams()*size+2*output {
			onGPUs -= output
		}
	} else {
		output = embedding * file / float64(m.shape.Params())
	}
	output = min(output, onGPUs)
	return (onGPUs - output) / float64(m.shape.Layers), output
}

// layerParams returns the number of parameters of all layers.
func (m *Model) layerParams() float64 {
	params := m.shape.Params() - m.shape.EmbeddingParams() - int64(m.shape.Hidden)
	if !m.shape.Tied {
		params -= m.shape.EmbeddingParams()
	}
	return float64(params)
}

// elementBytes returns the size of a weight if the format has one size for all weights, or else 0.
func (m *Model) elementBytes() float64 {
	switch size := m.weights.Format.BytesPerParam; size {
	case 2, 4:
		return size
	default:
		return 0
	}
}

// buffers returns the bytes of a micro-batch on one GPU.
func (m *Model) buffers(tokens float64, gpus int, last bool, law *catalog.EngineMemory) float64 {
	batch := float64(law.BatchTokens)
	copies := 1.0
	if gpus > 1 {
		copies = float64(law.InputCopies)
	}
	bytes := batch * float64(m.shape.Hidden) * float64(law.HiddenBytes)
	bytes += batch * tokens * float64(law.MaskBytes) * copies
	if last {
		bytes += batch * float64(m.shape.Vocab) * float64(law.LogitBytes)
	}
	return bytes
}

// layersOn returns how many of the model's layers one of several GPUs holds, without the output layer.
func layersOn(gpu, gpus, layers int) int {
	all := layers + 1
	first := ceilDiv(gpu*all, gpus)
	end := ceilDiv((gpu+1)*all, gpus)
	return min(end, layers) - min(first, layers)
}

// toGiB converts bytes to GiB and rounds up to a thousandth: more digits would suggest an exact figure.
func toGiB(bytes float64) float64 {
	return math.Ceil(bytes/gib*1000) / 1000
}

// roundUp rounds n up to a multiple of another number.
func roundUp(n, multiple int) int {
	return ceilDiv(n, multiple) * multiple
}
