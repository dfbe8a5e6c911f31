// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Quantization is a format of weights: what a parameter takes, and what a GPU needs to compute with it.
type Quantization struct {
	// Name as artifacts give it, for example fp8.
	Name string `json:"name"`
	// Aliases are further names that a manifest or a config.json may use.
	Aliases []string `json:"aliases,omitempty"`
	// Family that a manifest allows all formats of at once, for example fp8 or int4.
	Family string `json:"family,omitempty"`
	// BytesPerParam of a quantised parameter, scales and zeros included.
	BytesPerParam float64 `json:"bytesPerParam"`
	// Scope is what is quantised; everything else has 2 bytes.
	Scope Scope `json:"scope"`
	// Peak is the data type whose peak of a GPU applies to the quantised matrices, for example fp8.
	Peak string `json:"peak"`
	// Block is what a dimension that tensor parallelism cuts must be a multiple of on every rank; 0
	// means 1.
	Block int `json:"block,omitempty"`
	// Consent is what a manifest allows by naming this format, in words, for advice.
	Consent string `json:"consent,omitempty"`
	// LoadedFactor is how much larger the quantised weights are on a GPU than on disk, because kernels
	// pad them; 0 means 1.
	LoadedFactor float64 `json:"loadedFactor,omitempty"`
	// FormerFactor is that of releases of the engine before FormerUntil.
	FormerFactor float64 `json:"formerFactor,omitempty"`
	FormerUntil  string  `json:"formerUntil,omitempty"`
}

// Scope says which weights a format applies to.
type Scope string

// Scopes.
const (
	// ScopeAll are all weights.
	ScopeAll Scope = "all"
	// ScopeLinears are all but embeddings, the output matrix, norms, routers and ExtraParams.
	ScopeLinears Scope = "linears"
	// ScopeExperts are the experts that a router chooses.
	ScopeExperts Scope = "experts"
)

// Clone returns a copy that shares no memory with the format.
func (q Quantization) Clone() Quantization {
	q.Aliases = slices.Clone(q.Aliases)
	return q
}
