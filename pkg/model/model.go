// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model describes large language models: the shape of the transformer, the artifacts for engines, and the
// numbers that follow from them (parameters, bytes of weights, bytes of KV cache per token).
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
	// Aliases are other names for manifests, in lower case.
	Aliases []string `json:"aliases,omitempty"`
	// HubID is the Hugging Face id, for example org/Model.
	HubID string `json:"hubId"`
	// Shape of the transformer; zero if the model has no artifacts and its facts are unknown.
	Shape Shape `json:"shape,omitzero"`
	// Context is the model's longest sequence, in tokens.
	Context int `json:"context,omitempty"`
	// Gated models need the token of an account that accepted the licence.
	Gated bool `json:"gated,omitempty"`
	// License is the SPDX id or the publisher's name of the licence.
	License string `json:"license,omitempty"`
	// ToolParser and ReasoningParser are vLLM's names of the parsers for the model's tool calls and reasoning; empty if
	// there is none.
	ToolParser      string `json:"toolParser,omitempty"`
	ReasoningParser string `json:"reasoningParser,omitempty"`
	// Float16 says whether weights published in bf16 may be computed in fp16, which has a narrower range. GPUs without
	// bf16 need that. If it is empty, no publication shows that it works, so it needs the user's consent.
	Float16 Float16 `json:"float16,omitempty"`
	// RemoteCode: the engine must run code from the model's repository.
	RemoteCode bool `json:"remoteCode,omitempty"`
	// Needs names the engine that this version lacks, for a model without artifacts.
	Needs string `json:"needs,omitempty"`
	// Artifacts are the available forms of the weights, in order of preference.
	Artifacts []Artifact `json:"artifacts,omitempty"`
}

// Float16 says whether a model published in bf16 works in fp16.
type Float16 string

// Values of Float16.
const (
	// Float16Survives is for models that work in fp16 according to a publication.
	Float16Survives Float16 = "survives"
	// Float16Breaks is for models whose numbers overflow in fp16, so engines refuse to compute them in it.
	Float16Breaks Float16 = "breaks"
)

// Artifact is one form of a model's weights.
type Artifact struct {
	// Engine that loads it, for example llamacpp.
	Engine string `json:"engine"`
	// Repo on the hub, for example org/Model-GGUF.
	Repo string `json:"repo"`
	// Siblings are other repositories with weights of the same shape, format and size: former names of Repo, other
	// releases of the model, or other publishers' weights. If a manifest names one, it selects the artifact in that
	// repository.
	Siblings []string `json:"siblings,omitempty"`
	// Revision is a branch, tag or commit of Repo.
	Revision string `json:"revision"`
	// Files for the engine. Its command line names the first one. Empty if the engine loads all weights of the
	// repository.
	Files []File `json:"files,omitempty"`
	// WeightBytes is the size of all tensors if Files is empty. It is metadata.total_size of the safetensors index.
	WeightBytes int64 `json:"weightBytes,omitempty"`
	// WeightBasis is the basis of WeightBytes, like File.BytesBasis.
	WeightBasis BytesBasis `json:"weightBasis,omitempty"`
	// IdleBytes is the part of WeightBytes that is fetched but never loaded: layers for speculative decoding, or an
	// output matrix that equals the embedding.
	IdleBytes int64 `json:"idleBytes,omitempty"`
	// Quantization of the weights, for example f16 or q4_k_m.
	Quantization string `json:"quantization"`
	// Native: the weights have the publisher's precision, so serving them needs no consent.
	Native bool `json:"native,omitempty"`
	// Flags of the engine that these weights require.
	Flags []Flag `json:"flags,omitempty"`
}

// Flag is an engine's flag that an artifact requires.
type Flag struct {
	// Name is without dashes. Value is empty for a switch that is on.
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	// Why explains why the model needs the flag.
	Why string `json:"why"`
}

// File is one file of an artifact.
type File struct {
	// Path in the repository.
	Path string `json:"path"`
	// Bytes is the file's size.
	Bytes int64 `json:"bytes"`
	// BytesBasis is empty or exact if Bytes is the file's true size. It is estimated if Bytes follows from the number
	// of parameters: good enough for a plan, but not to check a download.
	BytesBasis BytesBasis `json:"bytesBasis,omitempty"`
	// SHA256 in hex; empty if only the hub's own metadata has it.
	SHA256 string `json:"sha256,omitempty"`
}

// BytesBasis says how a file's size is known.
type BytesBasis string

// Values of BytesBasis. An empty value means exact.
const (
	BytesExact     BytesBasis = "exact"
	BytesEstimated BytesBasis = "estimated"
)

// IsPinned reports whether the revision is a commit, which always has the same files.
func (a Artifact) IsPinned() bool {
	return regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(a.Revision)
}

// Bytes returns the size of all files of the artifact.
func (a Artifact) Bytes() int64 {
	sum := a.WeightBytes
	for _, f := range a.Files {
		sum += f.Bytes
	}
	return sum
}

// LoadedBytes returns the size of the tensors that the engine loads.
func (a Artifact) LoadedBytes() int64 {
	return a.Bytes() - a.IdleBytes
}

// BytesExact reports whether the size of every file is exact.
func (a Artifact) BytesExact() bool {
	return a.WeightBasis != BytesEstimated && !slices.ContainsFunc(a.Files, func(f File) bool { return f.BytesBasis == BytesEstimated })
}

// Clone returns a copy without memory shared with the model.
func (m Model) Clone() Model {
	m.Aliases = slices.Clone(m.Aliases)
	m.Shape = m.Shape.Clone()
	m.Artifacts = slices.Clone(m.Artifacts)
	for i := range m.Artifacts {
		m.Artifacts[i] = m.Artifacts[i].Clone()
	}
	return m
}

// Clone returns a copy without memory shared with the artifact.
func (a Artifact) Clone() Artifact {
	a.Files, a.Flags, a.Siblings = slices.Clone(a.Files), slices.Clone(a.Flags), slices.Clone(a.Siblings)
	return a
}
