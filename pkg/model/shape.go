// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package model

// Shape of a dense decoder-only transformer with full attention and a gated MLP.
type Shape struct {
	Layers       int `json:"layers"`
	Hidden       int `json:"hidden"`
	Intermediate int `json:"intermediate"`
	Heads        int `json:"heads"`
	KVHeads      int `json:"kvHeads"`
	HeadDim      int `json:"headDim"`
	Vocab        int `json:"vocab"`
	// Tied says that the output matrix is the token embedding.
	Tied bool `json:"tied,omitempty"`
	// QKVBias says that the query, key and value projections have biases, QKNorm that queries and
	// keys are normalised per head.
	QKVBias bool `json:"qkvBias,omitempty"`
	QKNorm  bool `json:"qkNorm,omitempty"`
}

// EmbeddingParams is the number of parameters of the token embedding, and of the output matrix.
func (s Shape) EmbeddingParams() int64 {
	return int64(s.Vocab) * int64(s.Hidden)
}

// LayerParams is the number of parameters of one layer.
func (s Shape) LayerParams() int64 {
	hidden, query, kv := int64(s.Hidden), int64(s.Heads)*int64(s.HeadDim), int64(s.KVHeads)*int64(s.HeadDim)
	attention := hidden*query + 2*hidden*kv + query*hidden
	if s.QKVBias {
		attention += query + 2*kv
	}
	if s.QKNorm {
		attention += 2 * int64(s.HeadDim)
	}
	mlp := 3 * hidden * int64(s.Intermediate)
	norms := 2 * hidden
	return attention + mlp + norms
}

// Params is the number of parameters of the model as published.
func (s Shape) Params() int64 {
	total := s.EmbeddingParams() + int64(s.Hidden) + int64(s.Layers)*s.LayerParams()
	if !s.Tied {
		total += s.EmbeddingParams()
	}
	return total
}

// LayerKVBytes is the size of the KV cache of one token in one layer, for the given bytes per element.
func (s Shape) LayerKVBytes(elementBytes int) int64 {
	return 2 * int64(s.KVHeads) * int64(s.HeadDim) * int64(elementBytes)
}

// KVBytes is the size of the KV cache of one token in all layers, for the given bytes per element.
func (s Shape) KVBytes(elementBytes int) int64 {
	return int64(s.Layers) * s.LayerKVBytes(elementBytes)
}
