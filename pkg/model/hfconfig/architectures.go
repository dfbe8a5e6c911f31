// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	_ "embed" // the table
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed architectures.yaml
var architecturesYAML []byte

// table is what classes do beyond what their configs say.
type table struct {
	Source        string         `json:"source"`
	Date          string         `json:"date"`
	Architectures []architecture `json:"architectures"`
	Refused       []refusal      `json:"refused"`
	Vision        []tower        `json:"vision"`
}

// architecture is the class, or the classes, of a language model.
type architecture struct {
	// Types are the values of model_type.
	Types []string `json:"types"`
	// Defaults hold for keys that the config leaves out.
	Defaults map[string]any `json:"defaults,omitempty"`

	// The following are "always", or the key that says so.
	QKVBias        string `json:"qkvBias,omitempty"`
	OutputBias     string `json:"outputBias,omitempty"`
	QKNorm         string `json:"qkNorm,omitempty"`
	WideQKNorm     string `json:"wideQKNorm,omitempty"`
	GatedAttention string `json:"gatedAttention,omitempty"`

	Sinks      bool `json:"sinks,omitempty"`
	PlainMLP   bool `json:"plainMLP,omitempty"`
	ExpertBias bool `json:"expertBias,omitempty"`
	SharedGate bool `json:"sharedGate,omitempty"`
	Norms      int  `json:"norms,omitempty"`
	// DenseKey and ExpertKey name the widths where the usual keys mean something else; SharedKey the
	// width of what works on every token.
	DenseKey  string `json:"denseKey,omitempty"`
	ExpertKey string `json:"expertKey,omitempty"`
	SharedKey string `json:"sharedKey,omitempty"`
	// DenseFactor times the hidden size is the width of the MLP where no key gives it.
	DenseFactor int `json:"denseFactor,omitempty"`
	// ContextScaled says that max_position_embeddings counts what rope scaling adds.
	ContextScaled bool `json:"contextScaled,omitempty"`
	// RemoteCode says that an engine runs code of the repository: its tokenizer is nowhere else.
	RemoteCode bool `json:"remoteCode,omitempty"`
}

// refusal is a kind of model that no planned engine answers requests with.
type refusal struct {
	Types  []string `json:"types"`
	Reason string   `json:"reason"`
}

// tower is a vision encoder, whose parameters are counted as extra ones.
type tower struct {
	Types []string `json:"types"`
	// Gated MLPs have three matrices. Bias says that matrices have one, LayerNorm that norms do.
	Gated     bool `json:"gated,omitempty"`
	Bias      bool `json:"bias,omitempty"`
	LayerNorm bool `json:"layerNorm,omitempty"`
	PatchBias bool `json:"patchBias,omitempty"`
	// ClassToken is one more position. OuterNorms stand before and after the layers.
	ClassToken bool `json:"classToken,omitempty"`
	OuterNorms int  `json:"outerNorms,omitempty"`
	// Positions are learned for each patch of the image, or as many as num_position_embeddings says.
	Positions positions `json:"positions,omitempty"`
	Projector projector `json:"projector"`
	// Tokens of the largest image where images have any size; else 0, and an image is one tile and as many more
	// as Tiles says.
	Tokens int `json:"tokens,omitempty"`
	Tiles  int `json:"tiles,omitempty"`
}

// loadTable decodes the embedded table.
func loadTable() (table, error) {
	var t table
	if err := yaml.UnmarshalStrict(architecturesYAML, &t); err != nil {
		return table{}, fmt.Errorf("hfconfig: architectures.yaml: %w", err)
	}
	return t, nil
}

func (t table) architecture(modelType string) (architecture, bool) {
	i := slices.IndexFunc(t.Architectures, func(a architecture) bool { return slices.Contains(a.Types, modelType) })
	if i < 0 {
		return architecture{}, false
	}
	return t.Architectures[i], true
}

func (t table) refusal(modelType string) (string, bool) {
	i := slices.IndexFunc(t.Refused, func(r refusal) bool { return slices.Contains(r.Types, modelType) })
	if i < 0 {
		return "", false
	}
	return t.Refused[i].Reason, true
}

func (t table) tower(modelTypes ...string) (tower, bool) {
	for _, modelType := range modelTypes {
		i := slices.IndexFunc(t.Vision, func(v tower) bool { return slices.Contains(v.Types, modelType) })
		if i >= 0 {
			return t.Vision[i], true
		}
	}
	return tower{}, false
}
