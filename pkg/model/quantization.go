// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Quantization is a format of weights: the size of a parameter, and what a GPU needs for it.
type Quantization struct {
	// Name in artifacts, for example fp8.
	Name string `json:"name"`
	// Aliases are other names in manifests and config.json.
	Aliases []string `json:"aliases,omitempty"`
	// Family is a name with which a manifest allows several formats at once, for example fp8 or int4.
	Family string `json:"family,omitempty"`
	// BytesPerParam is the size of a quantised parameter, with scales and zero points.
	BytesPerParam float64 `json:"bytesPerParam"`
	// Scope is the quantised part. All other weights have 2 bytes.
	Scope Scope `json:"scope"`
	// Peak is the data type of the GPU's peak that counts for the quantised matrices, for example fp8.
	Peak string `json:"peak"`
	// Block must divide each rank's share of a dimension that tensor parallelism cuts; 0 means 1.
	Block int `json:"block,omitempty"`
	// Consent describes the weights that a manifest allows with this format, for readers of the file: no code uses it.
	Consent string `json:"consent,omitempty"`
	// LoadedFactor is the ratio of the quantised weights' size on a GPU to the size on disk. It exceeds 1 if kernels
	// pad the weights; 0 means 1.
	LoadedFactor float64 `json:"loadedFactor,omitempty"`
	// FormerFactor is the ratio for the engine's releases before FormerUntil.
	FormerFactor float64 `json:"formerFactor,omitempty"`
	FormerUntil  string  `json:"formerUntil,omitempty"`
}

// Scope says which weights a format covers.
type Scope string

// Scopes.
const (
	// ScopeAll covers all weights.
	ScopeAll Scope = "all"
	// ScopeLinears covers all weights except embeddings, the output matrix, norms, routers and ExtraParams.
	ScopeLinears Scope = "linears"
	// ScopeExperts covers the experts behind a router.
	ScopeExperts Scope = "experts"
)

// Clone returns a copy without memory shared with the format.
func (q Quantization) Clone() Quantization {
	q.Aliases = slices.Clone(q.Aliases)
	return q
}
