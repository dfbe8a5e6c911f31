// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"encoding/json"
	"fmt"

	"github.com/modelberth/modelberth/pkg/model"
)

// blockConfig is a layer of a pruned model. It may have fewer KV heads, a narrower MLP, or lack attention or the MLP
// (NVIDIA's Puzzle; vllm/model_executor/models/nemotron_nas.py reads it).
type blockConfig struct {
	Attention struct {
		blockPart
		Group int `json:"n_heads_in_group"`
	} `json:"attention"`
	FFN struct {
		blockPart
		Multiple float64 `json:"ffn_mult"`
	} `json:"ffn"`
}

type blockPart struct {
	None   bool `json:"no_op"`
	Linear bool `json:"replace_with_linear"`
}

// widthMultiple is the multiple to which the width of a pruned MLP is rounded up.
const widthMultiple = 256

// irregular reads block_configs, which has one entry for each layer.
func (p *parser) irregular(s model.Shape) []model.LayerGroup {
	f, _ := p.find("block_configs")
	var blocks []blockConfig
	if json.Unmarshal(f.raw, &blocks) != nil {
		p.fail(f, "must be a list of layers")
		return nil
	}
	if !p.counted("block_configs", len(blocks), s.Layers) {
		return nil
	}
	out := make([]model.LayerGroup, 0, len(blocks))
	for i := range blocks {
		g, must := blocks[i].group(&s)
		if must != "" {
			p.failAt("block_configs", i, "{…}", must)
			return nil
		}
		out = append(out, g)
	}
	return out
}

// group returns the layer, or the requirement that it violates.
func (b *blockConfig) group(s *model.Shape) (g model.LayerGroup, must string) {
	switch {
	case b.Attention.Linear, b.FFN.Linear:
		return g, "has a matrix in place of attention or an MLP, which plans do not support"
	case b.Attention.None && b.FFN.None:
		return g, "has neither attention nor an MLP"
	}
	g.Mixer = model.MixerNone
	if !b.Attention.None {
		if b.Attention.Group < 1 || s.Heads%b.Attention.Group != 0 {
			return g, "must have an attention.n_heads_in_group that divides the attention heads"
		}
		g.Mixer, g.KVHeads = model.MixerFull, s.Heads/b.Attention.Group
	}
	if b.FFN.None {
		g.FeedForward = model.FeedForwardNone
		return g, ""
	}
	width := 2 * b.FFN.Multiple * float64(s.Hidden) / 3
	if !(width >= 1 && width <= maxIntermediate) {
		return g, fmt.Sprintf("must have an ffn.ffn_mult that gives the MLP a width from 1 to %d", maxIntermediate)
	}
	g.FeedForward = model.FeedForwardDense
	g.Intermediate = (int(width) + widthMultiple - 1) / widthMultiple * widthMultiple
	return g, ""
}

// evened gives the model the fewest KV heads and the widest MLP of its layers. These limit how many GPUs can share it.
func evened(s *model.Shape, kinds []model.LayerGroup) {
	for i := range kinds {
		if heads := kinds[i].KVHeads; heads > 0 {
			s.KVHeads = min(s.KVHeads, heads)
		}
		s.Intermediate = max(s.Intermediate, kinds[i].Intermediate)
	}
}
