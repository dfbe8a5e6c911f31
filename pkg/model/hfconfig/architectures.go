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

// table describes how model classes behave where their configs do not say so.
type table struct {
	Source        string         `json:"source"`
	Date          string         `json:"date"`
	Architectures []architecture `json:"architectures"`
	Refused       []refusal      `json:"refused"`
	Vision        []tower        `json:"vision"`
}

// architecture is one or several classes of language models.
type architecture struct {
	// Types are the values of model_type.
	Types []string `json:"types"`
	// Defaults are the values of keys that are missing in the config.
	Defaults map[string]any `json:"defaults,omitempty"`

	// Each of the following is "always", or the key in the config that decides.
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
	// DenseKey and ExpertKey are the keys of the widths if the usual keys have another meaning. SharedKey is the key of
	// the width of the shared experts.
	DenseKey  string `json:"denseKey,omitempty"`
	ExpertKey string `json:"expertKey,omitempty"`
	SharedKey string `json:"sharedKey,omitempty"`
	// DenseFactor is the ratio of MLP width to hidden size, for configs without a key for the width.
	DenseFactor int `json:"denseFactor,omitempty"`
	// ContextScaled: max_position_embeddings includes rope scaling.
	ContextScaled bool `json:"contextScaled,omitempty"`
	// RemoteCode: engines run code of the repository, because its tokenizer is available nowhere else.
	RemoteCode bool `json:"remoteCode,omitempty"`
}

// refusal is a kind of model that no supported engine can serve.
type refusal struct {
	Types  []string `json:"types"`
	Reason string   `json:"reason"`
}

// tower is a vision encoder. Its parameters count as extra ones.
type tower struct {
	Types []string `json:"types"`
	// Gated: MLPs have three matrices. Bias: matrices have a bias. LayerNorm: norms have a bias.
	Gated     bool `json:"gated,omitempty"`
	Bias      bool `json:"bias,omitempty"`
	LayerNorm bool `json:"layerNorm,omitempty"`
	PatchBias bool `json:"patchBias,omitempty"`
	// ClassToken adds one position. OuterNorms is the number of norms before and after the layers.
	ClassToken bool `json:"classToken,omitempty"`
	OuterNorms int  `json:"outerNorms,omitempty"`
	// Positions is empty if positions are not learned. Otherwise there is one for each patch of the image, or as many
	// as num_position_embeddings.
	Positions positions `json:"positions,omitempty"`
	Projector projector `json:"projector"`
	// Tokens is the number of tokens of the largest image, if images have any size. If it is 0, an image has one tile
	// and Tiles additional ones.
	Tokens int `json:"tokens,omitempty"`
	Tiles  int `json:"tiles,omitempty"`
	// AnySize: images up to image_size keep their size.
	AnySize bool `json:"anySize,omitempty"`
	// VideoTokens and VideoPairs are as in model.Vision.
	VideoTokens int `json:"videoTokens,omitempty"`
	VideoPairs  int `json:"videoPairs,omitempty"`
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
