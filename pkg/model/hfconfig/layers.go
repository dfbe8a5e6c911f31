// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/pkg/model"
)

// layers reads how layers differ: in mixers, windows and experts.
func (p *parser) layers(s *model.Shape, context int) {
	s.MoE = p.experts()
	if p.err != nil {
		return
	}
	kinds, interleaved := p.mixers(*s, context)
	if p.err != nil {
		return
	}
	isExperts := func(g model.LayerGroup) bool { return g.FeedForward == model.FeedForwardExperts }
	switch {
	case !interleaved && s.MoE != nil:
		spread(s, kinds, p.denseLayers(s.Layers))
	case interleaved && !slices.ContainsFunc(kinds, isExperts):
		s.MoE = nil
	case s.MoE == nil && interleaved:
		p.required(maxExperts, "num_experts", "num_local_experts", "n_routed_experts")
	}
	if p.has("block_configs") {
		evened(s, kinds)
	}
	s.Pattern = p.grouped(kinds)
	if hasDense(*s, kinds) {
		s.Intermediate = p.intermediate(s.Hidden)
	}
}

// mixers returns one group for each layer. The second result reports whether each layer has only a mixer or only a
// feed-forward part.
func (p *parser) mixers(s model.Shape, context int) ([]model.LayerGroup, bool) {
	switch {
	case p.has("block_configs"):
		return p.irregular(s), false
	case p.has("hybrid_override_pattern"), p.has("layers_block_type"):
		return p.blocks(s.Layers), true
	case p.has("layer_types"):
		return p.layerTypes(s.Layers, context), false
	case p.has("full_attention_interval"):
		every := p.integer(1, maxLayers, "full_attention_interval")
		return p.alternate(s.Layers, every, model.LayerGroup{Mixer: model.MixerDeltaNet}), false
	case p.has("attention_chunk_size"):
		return p.chunks(s.Layers, context), false
	}
	for i, kind := range p.integers("attn_type_list") {
		if kind != 1 {
			p.failAt("attn_type_list", i, kind, "is an unknown kind of attention: only 1 is known")
		}
	}
	return p.windows(s.Layers, context), false
}

// blocks reads models in which each layer is a mixer, an MLP or a mixture of experts.
func (p *parser) blocks(layers int) []model.LayerGroup {
	names, field := p.texts("layers_block_type"), "layers_block_type"
	if pattern := p.text("hybrid_override_pattern"); pattern != "" {
		names, field = nil, "hybrid_override_pattern"
		for _, letter := range pattern {
			names = append(names, string(letter))
		}
	}
	if !p.counted(field, len(names), layers) {
		return nil
	}
	var out []model.LayerGroup
	for i, name := range names {
		g := model.LayerGroup{FeedForward: model.FeedForwardNone}
		switch name {
		case "M", "mamba", "mamba2":
			g.Mixer = model.MixerMamba2
		case "*", "attention":
			g.Mixer = model.MixerFull
		case "-", "mlp":
			g.Mixer, g.FeedForward = model.MixerNone, model.FeedForwardDense
		case "E", "moe":
			g.Mixer, g.FeedForward = model.MixerNone, model.FeedForwardExperts
		default:
			p.unknownLayer(field, i, name)
		}
		out = append(out, g)
	}
	return out
}

// layerTypes reads layer_types, which has one name for each layer.
func (p *parser) layerTypes(layers, context int) []model.LayerGroup {
	names := p.texts("layer_types")
	if !p.counted("layer_types", len(names), layers) {
		return nil
	}
	window := p.limited(model.MixerWindow, context, "sliding_window")
	chunk := p.limited(model.MixerChunk, context, "attention_chunk_size")
	var out []model.LayerGroup
	for i, name := range names {
		var g model.LayerGroup
		switch name {
		case "full_attention", "attention":
			g.Mixer = model.MixerFull
		case "sliding_attention":
			g = window
		case "chunked_attention":
			g = chunk
		case "linear_attention":
			g.Mixer = model.MixerDeltaNet
		default:
			p.unknownLayer("layer_types", i, name)
		}
		out = append(out, g)
	}
	return out
}

func (p *parser) unknownLayer(field string, i int, name string) {
	p.failAt(field, i, quoted(name), "is an unknown kind of layer")
}

// failAt is fail for an entry of a list.
func (p *parser) failAt(field string, i int, value any, must string) {
	p.fail(found{fmt.Sprintf("%s[%d]", field, i), fmt.Append(nil, value)}, must)
}

// counted checks that a list has an entry for each layer. It returns false if this or an earlier check failed.
func (p *parser) counted(field string, entries, layers int) bool {
	if entries != layers && p.err == nil {
		p.err = &FieldError{File: p.file, Field: field, Must: fmt.Sprintf("has %d entries for %d layers", entries, layers)}
	}
	return p.err == nil
}

// limited returns a layer that keeps the tokens of a window. It has full attention if the window is as long as the
// context.
func (p *parser) limited(mixer model.Mixer, context int, key string) model.LayerGroup {
	window := p.integer(0, maxContext, key)
	if window == 0 || window >= context {
		return model.LayerGroup{Mixer: model.MixerFull}
	}
	return model.LayerGroup{Mixer: mixer, Window: window}
}

// chunks reads models with chunked attention. Layers without rotary positions, by default every fourth, have full
// attention.
func (p *parser) chunks(layers, context int) []model.LayerGroup {
	chunk := p.limited(model.MixerChunk, context, "attention_chunk_size")
	rope := p.integers("no_rope_layers")
	if len(rope) == 0 {
		return p.alternate(layers, p.required(maxLayers, "no_rope_layer_interval"), chunk)
	}
	if !p.counted("no_rope_layers", len(rope), layers) {
		return nil
	}
	out := make([]model.LayerGroup, len(rope))
	for i, has := range rope {
		out[i] = chunk
		if has == 0 {
			out[i] = model.LayerGroup{Mixer: model.MixerFull}
		}
	}
	return out
}

// windows reads models that have one sliding window for all layers.
func (p *parser) windows(layers, context int) []model.LayerGroup {
	full := model.LayerGroup{Mixer: model.MixerFull}
	window := p.limited(model.MixerWindow, context, "sliding_window")
	if p.has("use_sliding_window") && !p.boolean("use_sliding_window") {
		window = full
	}
	if p.has("sliding_window_pattern", "_sliding_window_pattern") {
		return p.alternate(layers, p.integer(1, maxLayers, "sliding_window_pattern", "_sliding_window_pattern"), window)
	}
	first := 0
	if p.has("use_sliding_window") {
		first = p.integer(0, maxLayers, "max_window_layers")
	}
	out := make([]model.LayerGroup, layers)
	for i := range out {
		out[i] = window
		if i < first {
			out[i] = full
		}
	}
	return out
}

// alternate gives every n-th layer full attention.
func (p *parser) alternate(layers, n int, other model.LayerGroup) []model.LayerGroup {
	if p.err != nil {
		return nil
	}
	out := make([]model.LayerGroup, layers)
	for i := range out {
		out[i] = other
		if (i+1)%n == 0 {
			out[i] = model.LayerGroup{Mixer: model.MixerFull}
		}
	}
	return out
}

// denseLayers reports for each layer whether it has an MLP instead of experts.
func (p *parser) denseLayers(layers int) []bool {
	first := p.integer(0, maxLayers, "first_k_dense_replace")
	step := max(1, p.integer(0, maxLayers, "decoder_sparse_step", "interleave_moe_layer_step"))
	dense := make([]bool, layers)
	for i := range dense {
		dense[i] = i < first || (i+1)%step != 0
	}
	for i, at := range p.integers("mlp_only_layers") {
		if at < 0 || at >= layers {
			p.failAt("mlp_only_layers", i, at, fmt.Sprintf("is none of the %d layers", layers))
			break
		}
		dense[at] = true
	}
	p.frequency(dense, first)
	return dense
}

// frequency reads moe_layer_freq: a number, or a list with 1 or 0 for each layer.
func (p *parser) frequency(dense []bool, first int) {
	f, ok := p.find("moe_layer_freq")
	if !ok {
		return
	}
	var each []int
	if json.Unmarshal(f.raw, &each) != nil {
		every := max(1, p.integer(1, maxLayers, "moe_layer_freq"))
		for i := first; i < len(dense); i++ {
			dense[i] = dense[i] || i%every != 0
		}
		return
	}
	if p.counted("moe_layer_freq", len(each), len(dense)) {
		for i := range dense {
			dense[i] = each[i] == 0
		}
	}
}

// spread sets in the shape which layers are dense: the first ones, all but every n-th one, or layer by layer.
func spread(s *model.Shape, kinds []model.LayerGroup, dense []bool) {
	first := slices.Index(dense, false)
	switch {
	case first < 0:
		s.MoE = nil
	case !slices.Contains(dense[first:], true):
		s.MoE.DenseLayers = first
	case rhythm(dense, first+1):
		s.MoE.Every = first + 1
	default:
		for i := range kinds {
			kinds[i].FeedForward = model.FeedForwardExperts
			if dense[i] {
				kinds[i].FeedForward = model.FeedForwardDense
			}
		}
	}
}

// rhythm reports whether exactly every n-th layer has experts.
func rhythm(dense []bool, n int) bool {
	for i, d := range dense {
		if d != ((i+1)%n != 0) {
			return false
		}
	}
	return true
}

func hasDense(s model.Shape, kinds []model.LayerGroup) bool {
	if s.MoE != nil && (s.MoE.DenseLayers > 0 || s.MoE.Every > 1) {
		return true
	}
	return slices.ContainsFunc(kinds, func(g model.LayerGroup) bool {
		isDense := g.FeedForward == model.FeedForwardDense || (g.FeedForward == model.FeedForwardDefault && s.MoE == nil)
		return isDense && g.Intermediate == 0
	})
}

// grouped counts equal layers and adds their states. It returns nil if all layers are plain.
func (p *parser) grouped(kinds []model.LayerGroup) []model.LayerGroup {
	var out []model.LayerGroup
	for _, kind := range kinds {
		i := slices.IndexFunc(out, func(g model.LayerGroup) bool {
			g.Count = 0
			return g == kind
		})
		if i < 0 {
			out = append(out, kind)
			i = len(out) - 1
		}
		out[i].Count++
	}
	for i, g := range out {
		out[i].State = p.state(g.Mixer)
	}
	if len(out) == 1 && out[0].Mixer == model.MixerFull && out[0].FeedForward == model.FeedForwardDefault {
		return nil
	}
	return out
}

// state reads the state that layers with a mixer keep for a sequence.
func (p *parser) state(mixer model.Mixer) *model.State {
	var out model.State
	switch mixer {
	case model.MixerMamba2:
		out = model.State{
			Conv:       p.required(maxConv, "mamba_d_conv", "conv_kernel"),
			KeyHeads:   p.required(maxHeads, "mamba_n_groups", "n_groups"),
			ValueHeads: p.required(maxHeads, "mamba_n_heads", "mamba_num_heads"),
			KeyDim:     p.required(maxHeadDim, "mamba_d_state", "ssm_state_size"),
			ValueDim:   p.required(maxHeadDim, "mamba_d_head", "mamba_head_dim"),
		}
	case model.MixerDeltaNet:
		out = model.State{
			Conv:       p.required(maxConv, "linear_conv_kernel_dim"),
			KeyHeads:   p.required(maxHeads, "linear_num_key_heads"),
			ValueHeads: p.required(maxHeads, "linear_num_value_heads"),
			KeyDim:     p.required(maxHeadDim, "linear_key_head_dim"),
			ValueDim:   p.required(maxHeadDim, "linear_value_head_dim"),
		}
	case model.MixerFull, model.MixerWindow, model.MixerChunk, model.MixerNone:
		return nil
	}
	if dtype := p.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype"); dtype == "bfloat16" || dtype == "float16" {
		out.Bytes = 2
	}
	return &out
}
