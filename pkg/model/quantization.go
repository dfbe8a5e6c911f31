// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Quantization is a format of weights: the size of a parameter, and a GPU's requirements for it.
type Quantization struct {
	// Name as artifacts give it, for example fp8.
	Name string `json:"name"`
	// Aliases are further names for manifests and config.json.
	Aliases []string `json:"aliases,omitempty"`
	// Family is the name by which a manifest allows all its formats at once, for example fp8 or int4.
	Family string `json:"family,omitempty"`
	// BytesPerParam of a quantised parameter, scales and zeros included.
	BytesPerParam float64 `json:"bytesPerParam"`
	// Scope is the quantised part; everything else has 2 bytes.
	Scope Scope `json:"scope"`
	// Peak is the data type of a GPU's peak for the quantised matrices, for example fp8.
	Peak string `json:"peak"`
	// Block divides each rank's share of a dimension cut by tensor parallelism; 0 means 1.
	Block int `json:"block,omitempty"`
	// Consent describes the permission in a manifest with this format, for advice.
	Consent string `json:"consent,omitempty"`
	// LoadedFactor is how much larger the quantised weights are on a GPU than on disk, because kernels
	// pad them; 0 means 1.
	LoadedFactor float64 `json:"loadedFactor,omitempty"`
	// FormerFactor is the factor for releases of the engine before FormerUntil.
	FormerFactor float64 `json:"formerFactor,omitempty"`
	FormerUntil  string  `json:"formerUntil,omitempty"`
}

// Scope selects the weights of a format.
type Scope string

// Scopes.
const (
	// ScopeAll are all weights.
	ScopeAll Scope = "all"
	// ScopeLinears are all weights except embeddings, the output matrix, norms, routers and ExtraParams.
	ScopeLinears Scope = "linears"
	// ScopeExperts are the experts behind a router.
	ScopeExperts Scope = "experts"
)

// Clone returns a copy without memory shared with the format.
func (q Quantization) Clone() Quantization {
	q.Aliases = slices.Clone(q.Aliases)
	return q
}
