// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"math"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
)

// gib is a GiB in bytes.
const gib = 1 << 30

// load is a model in one form on one engine: what must fit.
type load struct {
	shape    model.Shape
	artifact model.Artifact
	law      catalog.EngineMemory
}

// budget returns the memory of the fullest GPU when the layers spread over a number of GPUs and
// concurrency sequences of length tokens are kept.
//
// llama.cpp gives GPU i the layers for which floor(layer * gpus / (layers + 1)) = i, counting the
// output layer as the last one; the token embedding stays in the host's memory
// (llama_model::load_tensors in src/llama-model.cpp).
func (l load) budget(total float64, gpus, length, concurrency int) Memory {
	tokens := float64(roundUp(length, l.law.ContextMultiple)) * float64(concurrency)
	layerWeights, outputWeights := l.weights()
	layerKV := float64(l.shape.LayerKVBytes(l.law.KVBytes)) * tokens
	basis := l.law.Basis
	if !l.artifact.BytesExact() {
		basis = v1beta1.BasisEstimated
	}
	fullest, most := Memory{}, math.Inf(-1)
	for gpu := range gpus {
		layers := float64(layersOn(gpu, gpus, l.shape.Layers))
		last := gpu == gpus-1
		weights := layers * layerWeights
		if last {
			weights += outputWeights
		}
		m := Memory{
			Total:    total,
			Weights:  toGiB(weights),
			KVCache:  toGiB(layers * layerKV),
			Overhead: toGiB(l.overhead(tokens, gpus, last)),
			Basis:    basis,
		}
		if need := m.Total - m.Free(); need > most {
			fullest, most = m, need
		}
	}
	return fullest
}

// weights returns the bytes of one layer and of the output layer on a GPU.
//
// Where the file's element size is known, and it holds two matrices of the embedding's size, one of
// them is the token embedding, which stays on the host. Otherwise all bytes of the file are counted on
// the GPUs.
func (l load) weights() (layer, output float64) {
	file, embedding := float64(l.artifact.Bytes()), float64(l.shape.EmbeddingParams())
	onGPUs := file
	if size := elementBytes(l.artifact.Quantization); size > 0 {
		output = embedding * size
		if file >= float64(l.shape.Layers)*float64(l.shape.LayerParams())*size+2*output {
			onGPUs -= output
		}
	} else {
		output = embedding * file / float64(l.shape.Params())
	}
	output = min(output, onGPUs)
	return (onGPUs - output) / float64(l.shape.Layers), output
}

// overhead returns the bytes of one GPU besides weights and KV cache.
func (l load) overhead(tokens float64, gpus int, last bool) float64 {
	batch := float64(l.law.BatchTokens)
	copies := 1.0
	if gpus > 1 {
		copies = float64(l.law.InputCopies)
	}
	bytes := l.law.ReserveGiB * gib
	bytes += batch * float64(l.shape.Hidden) * float64(l.law.HiddenBytes)
	bytes += batch * tokens * float64(l.law.MaskBytes) * copies
	if last {
		bytes += batch * float64(l.shape.Vocab) * float64(l.law.LogitBytes)
	}
	return bytes
}

// layersOn returns how many of the model's layers one of several GPUs holds, the output layer apart.
func layersOn(gpu, gpus, layers int) int {
	all := layers + 1
	first := (gpu*all + gpus - 1) / gpus
	end := ((gpu+1)*all + gpus - 1) / gpus
	return min(end, layers) - min(first, layers)
}

// elementBytes is the size of a weight in a format that stores every weight alike, or 0.
func elementBytes(quantization string) float64 {
	switch quantization {
	case "f16", "bf16":
		return 2
	case "f32":
		return 4
	default:
		return 0
	}
}

// toGiB rounds bytes up to a thousandth of a GiB: finer figures would pretend to be exact.
func toGiB(bytes float64) float64 {
	return math.Ceil(bytes/gib*1000) / 1000
}

// roundUp rounds up to a multiple.
func roundUp(n, multiple int) int {
	return (n + multiple - 1) / multiple * multiple
}
