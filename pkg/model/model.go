// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model holds what a large language model is: the shape of its transformer, the artifacts
// that an engine loads, and the arithmetic that follows from them (number of parameters, bytes of
// weights, bytes of KV cache per token).
//
// It decides nothing and must not know machines, prices, engines' flags or Kubernetes.
package model

import (
	"regexp"
	"slices"
)

// Model is one model of the catalogue.
type Model struct {
	// Name is the preset's name: the lower-case basename of HubID.
	Name string `json:"name"`
	// Aliases are further names that a manifest may use, lower-case.
	Aliases []string `json:"aliases,omitempty"`
	// HubID is the Hugging Face id, for example org/Model.
	HubID string `json:"hubId"`
	// Shape of the transformer; zero where the model has no artifacts and the facts are not known.
	Shape Shape `json:"shape,omitzero"`
	// Context is the longest sequence that the model was made for, in tokens.
	Context int `json:"context,omitempty"`
	// Gated models need a token of somebody who accepted the licence.
	Gated bool `json:"gated,omitempty"`
	// License is the SPDX id or the publisher's name of the licence.
	License string `json:"license,omitempty"`
	// ToolParser and ReasoningParser are vLLM's names for what reads the model's tool calls and its
	// reasoning; empty where it has none.
	ToolParser      string `json:"toolParser,omitempty"`
	ReasoningParser string `json:"reasoningParser,omitempty"`
	// RemoteCode says that the model's repository holds code which the engine must run.
	RemoteCode bool `json:"remoteCode,omitempty"`
	// Needs names the engine that a model without artifacts is waiting for.
	Needs string `json:"needs,omitempty"`
	// Artifacts are the forms in which the weights can be fetched, in order of preference.
	Artifacts []Artifact `json:"artifacts,omitempty"`
}

// Artifact is one form of a model's weights.
type Artifact struct {
	// Engine that loads it, for example llamacpp.
	Engine string `json:"engine"`
	// Repo on the hub, for example org/Model-GGUF.
	Repo string `json:"repo"`
	// Siblings are repositories with weights of the same shape, format and size: former names of Repo, other
	// releases of the model, or other people's weights. Naming one means the artifact in that repository.
	Siblings []string `json:"siblings,omitempty"`
	// Revision is a branch, tag or commit of Repo.
	Revision string `json:"revision"`
	// Files that the engine loads; the first one is named on its command line. Empty where the engine
	// loads all weights of the repository.
	Files []File `json:"files,omitempty"`
	// WeightBytes is the size of all tensors where Files is empty: metadata.total_size of the
	// safetensors index.
	WeightBytes int64 `json:"weightBytes,omitempty"`
	// WeightBasis is that of WeightBytes, as File.BytesBasis.
	WeightBasis BytesBasis `json:"weightBasis,omitempty"`
	// IdleBytes of WeightBytes are fetched and never loaded: layers that only speculative decoding
	// uses, or the output matrix beside the embedding that it equals.
	IdleBytes int64 `json:"idleBytes,omitempty"`
	// Quantization of the weights, for example f16 or q4_k_m.
	Quantization string `json:"quantization"`
	// Native says that the weights have the precision that the publisher released, so that serving
	// them needs nobody's consent.
	Native bool `json:"native,omitempty"`
	// Flags of the engine that this form of the model cannot do without.
	Flags []Flag `json:"flags,omitempty"`
}

// Flag is one that a model needs.
type Flag struct {
	// Name without dashes, and its value; an empty value is a switch that is turned on.
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	// Why the model needs it.
	Why string `json:"why"`
}

// File is one file of an artifact.
type File struct {
	// Path within the repo.
	Path string `json:"path"`
	// Bytes is the size.
	Bytes int64 `json:"bytes"`
	// BytesBasis is empty or exact where Bytes is the file's size, estimated where it was computed
	// from the number of parameters: good for planning, never to check a download with.
	BytesBasis BytesBasis `json:"bytesBasis,omitempty"`
	// SHA256 in hex; empty where the hub's own metadata must do.
	SHA256 string `json:"sha256,omitempty"`
}

// BytesBasis says how a file's size is known.
type BytesBasis string

// The bases of a file's size. The empty basis means exact.
const (
	BytesExact     BytesBasis = "exact"
	BytesEstimated BytesBasis = "estimated"
)

// IsPinned reports whether the revision is a commit, which can never mean other files later.
func (a Artifact) IsPinned() bool {
	return regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(a.Revision)
}

// Bytes is the size of all files of the artifact.
func (a Artifact) Bytes() int64 {
	sum := a.WeightBytes
	for _, f := range a.Files {
		sum += f.Bytes
	}
	return sum
}

// LoadedBytes is the size of the tensors that the engine loads.
func (a Artifact) LoadedBytes() int64 {
	return a.Bytes() - a.IdleBytes
}

// BytesExact says whether the size of every file is exact.
func (a Artifact) BytesExact() bool {
	return a.WeightBasis != BytesEstimated && !slices.ContainsFunc(a.Files, func(f File) bool { return f.BytesBasis == BytesEstimated })
}

// Clone returns a copy that shares no memory with the model.
func (m Model) Clone() Model {
	m.Aliases = slices.Clone(m.Aliases)
	m.Shape = m.Shape.Clone()
	m.Artifacts = slices.Clone(m.Artifacts)
	for i := range m.Artifacts {
		m.Artifacts[i] = m.Artifacts[i].Clone()
	}
	return m
}

// Clone returns a copy that shares no memory with the artifact.
func (a Artifact) Clone() Artifact {
	a.Files, a.Flags, a.Siblings = slices.Clone(a.Files), slices.Clone(a.Flags), slices.Clone(a.Siblings)
	return a
}
