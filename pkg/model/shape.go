// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"reflect"
	"slices"
)

// Shape has the dimensions of a transformer. The number of parameters and the size of the KV cache follow from them
// exactly. Its counting rules were checked against the published totals of more than fifty models.
type Shape struct {
	Layers int `json:"layers"`
	Hidden int `json:"hidden"`
	// Intermediate is the width of a dense MLP; 0 if no layer has one.
	Intermediate int `json:"intermediate,omitempty"`
	// Heads is the number of query heads, KVHeads of key and value heads, and HeadDim the dimension of each.
	Heads   int `json:"heads"`
	KVHeads int `json:"kvHeads"`
	HeadDim int `json:"headDim"`
	// ValueDim is the dimension of a value head if it differs from HeadDim.
	ValueDim int `json:"valueDim,omitempty"`
	Vocab    int `json:"vocab"`
	// Tied: the output matrix is the token embedding.
	Tied bool `json:"tied,omitempty"`
	// QKVBias: the query, key and value projections have biases. OutputBias: the output projection has a bias. QKNorm:
	// queries and keys are normalised per head. WideQKNorm: they are normalised over all heads together.
	QKVBias    bool `json:"qkvBias,omitempty"`
	OutputBias bool `json:"outputBias,omitempty"`
	QKNorm     bool `json:"qkNorm,omitempty"`
	WideQKNorm bool `json:"wideQKNorm,omitempty"`
	// GatedAttention: the query projection also makes an output gate as wide as the queries. Sinks: each query head
	// has a learned sink.
	GatedAttention bool `json:"gatedAttention,omitempty"`
	Sinks          bool `json:"sinks,omitempty"`
	// PlainMLP: an MLP has two matrices. A gated MLP has three.
	PlainMLP bool `json:"plainMLP,omitempty"`
	// Norms per layer; 0 means 2.
	Norms int `json:"norms,omitempty"`
	// MoE is set if layers choose among experts.
	MoE *MoE `json:"moe,omitempty"`
	// MLA is set if one compressed vector holds keys and values.
	MLA *MLA `json:"mla,omitempty"`
	// Pattern groups the layers by their token mixer; empty means full attention in every layer. The groups alternate
	// evenly through the model.
	Pattern []LayerGroup `json:"pattern,omitempty"`
	// ExtraParams is the number of parameters loaded in addition to the language model, for example of a vision tower.
	ExtraParams int64 `json:"extraParams,omitempty"`
	// Vision is the image encoder; nil if there is none, or if it is unknown.
	Vision *Vision `json:"vision,omitempty"`
}

// Vision describes an image encoder.
type Vision struct {
	// Hidden and Intermediate are the widths of its layers. Gated: its MLPs have three matrices.
	Hidden       int  `json:"hidden"`
	Intermediate int  `json:"intermediate"`
	Gated        bool `json:"gated,omitempty"`
	// Patches is the number of patches of the largest image, and Tokens the number of tokens that they become.
	Patches int `json:"patches"`
	Tokens  int `json:"tokens"`
	// PatchPixels is the side of a patch if images keep their size; 0 if all are scaled to one size.
	PatchPixels int `json:"patchPixels,omitempty"`
	// VideoTokens is the number of tokens of two frames of the largest size. VideoPairs is the largest number of such
	// pairs in the engine's profile run. Both are 0 if the model reads no videos.
	VideoTokens int `json:"videoTokens,omitempty"`
	VideoPairs  int `json:"videoPairs,omitempty"`
	// Taps is the number of further layers whose outputs go to the language model.
	Taps int `json:"taps,omitempty"`
}

// MoE is a mixture of experts.
type MoE struct {
	// Experts is the number of experts of a layer. TopK of them work on each token.
	Experts int `json:"experts"`
	TopK    int `json:"topK"`
	// Intermediate is the width of one expert, and SharedIntermediate the width of the shared experts.
	Intermediate       int `json:"intermediate"`
	SharedIntermediate int `json:"sharedIntermediate,omitempty"`
	// DenseLayers is the number of layers at the beginning that have a dense MLP instead.
	DenseLayers int `json:"denseLayers,omitempty"`
	// Every is n if only every n-th layer has experts; 0 means every layer.
	Every int `json:"every,omitempty"`
	// Bias: the matrices of experts and router have biases. RouterBias: the router's scores have a bias.
	Bias       bool `json:"bias,omitempty"`
	RouterBias bool `json:"routerBias,omitempty"`
	// SharedGate: a gate of one column weights the shared experts.
	SharedGate bool `json:"sharedGate,omitempty"`
	// LatentDim is the width of the experts' inputs and outputs if it differs from Hidden.
	LatentDim int `json:"latentDim,omitempty"`
}

// MLA is multi-head latent attention.
type MLA struct {
	// KVRank and RopeDim are the numbers of values kept of each token in a layer.
	KVRank  int `json:"kvRank"`
	RopeDim int `json:"ropeDim"`
	// QRank is the rank to which queries are compressed; 0 means no compression.
	QRank    int `json:"qRank,omitempty"`
	NopeDim  int `json:"nopeDim"`
	ValueDim int `json:"valueDim"`
	// Direct: the heads attend to the kept values directly, and do not expand them into their own keys and values.
	Direct bool `json:"direct,omitempty"`
	// OutputRank is the rank to which the heads' outputs are compressed in each of OutputGroups; 0 means no
	// compression.
	OutputRank   int `json:"outputRank,omitempty"`
	OutputGroups int `json:"outputGroups,omitempty"`
	// IndexHeads and IndexDim describe the indexer of sparse attention in layers with full attention; 0 means no
	// indexer.
	IndexHeads int `json:"indexHeads,omitempty"`
	IndexDim   int `json:"indexDim,omitempty"`
}

// Mixer is the way in which a layer mixes tokens.
type Mixer string

// Mixers.
const (
	// MixerFull attends to all earlier tokens.
	MixerFull Mixer = "full"
	// MixerWindow attends to the last Window tokens, MixerChunk to the tokens of the same chunk.
	MixerWindow Mixer = "window"
	MixerChunk  Mixer = "chunk"
	// MixerMamba2 and MixerDeltaNet keep a state of fixed size.
	MixerMamba2   Mixer = "mamba2"
	MixerDeltaNet Mixer = "deltanet"
	// MixerNone has no attention: the layer is only an MLP.
	MixerNone Mixer = "none"
)

// FeedForward is the part of a layer after the mixer.
type FeedForward string

// Feed-forward parts.
const (
	// FeedForwardDefault means what MoE says: experts or a dense MLP.
	FeedForwardDefault FeedForward = ""
	FeedForwardDense   FeedForward = "dense"
	FeedForwardExperts FeedForward = "experts"
	FeedForwardNone    FeedForward = "none"
)

// LayerGroup is a number of equal layers.
type LayerGroup struct {
	Count int   `json:"count"`
	Mixer Mixer `json:"mixer"`
	// FeedForward of these layers.
	FeedForward FeedForward `json:"feedForward,omitempty"`
	// Window is the number of tokens in MixerWindow and MixerChunk.
	Window int `json:"window,omitempty"`
	// KVHeads and HeadDim are set if they differ from the model's.
	KVHeads int `json:"kvHeads,omitempty"`
	HeadDim int `json:"headDim,omitempty"`
	// Intermediate is the width of a dense MLP if it differs from the model's.
	Intermediate int `json:"intermediate,omitempty"`
	// ReusedKV: the layers attend to the keys and values of an earlier layer and keep none. KeysAreValues: they have no
	// projection for values.
	ReusedKV      bool `json:"reusedKV,omitempty"`
	KeysAreValues bool `json:"keysAreValues,omitempty"`
	// ReusedIndex: the layers attend to the tokens that an earlier layer's indexer chose.
	ReusedIndex bool `json:"reusedIndex,omitempty"`
	// State is set for mixers that keep a state.
	State *State `json:"state,omitempty"`
}

// State is what a state-space layer keeps of a sequence. Its size does not depend on the sequence's length.
type State struct {
	// Conv is the width of the causal convolution.
	Conv int `json:"conv"`
	// KeyHeads, ValueHeads, KeyDim and ValueDim are those of a gated delta net. For Mamba 2, ValueHeads is the number
	// of its heads, ValueDim their dimension, KeyHeads the number of groups, and KeyDim the state size.
	KeyHeads   int `json:"keyHeads"`
	ValueHeads int `json:"valueHeads"`
	KeyDim     int `json:"keyDim"`
	ValueDim   int `json:"valueDim"`
	// Bytes is the size of an element of the recurrent state; 0 means 4. An element of the convolution has 2.
	Bytes int `json:"bytes,omitempty"`
}

// IsZero reports whether the shape is unknown.
func (s Shape) IsZero() bool {
	return reflect.ValueOf(s).IsZero()
}

// EmbeddingParams returns the number of parameters of one embedding matrix.
func (s Shape) EmbeddingParams() int64 {
	return int64(s.Vocab) * int64(s.Hidden)
}

// Clone returns a copy without memory shared with the shape.
func (s Shape) Clone() Shape {
	s.MoE, s.MLA, s.Vision, s.Pattern = clonePointer(s.MoE), clonePointer(s.MLA), clonePointer(s.Vision), slices.Clone(s.Pattern)
	for i := range s.Pattern {
		s.Pattern[i].State = clonePointer(s.Pattern[i].State)
	}
	return s
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	out := *p
	return &out
}
