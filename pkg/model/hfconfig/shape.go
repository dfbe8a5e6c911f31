// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"encoding/json"
	"fmt"

	"github.com/modelberth/modelberth/pkg/model"
)

// Limits of dimensions, as in the catalogue. They keep every product of a shape within 64 bits.
const (
	maxLayers       = 1 << 12
	maxHidden       = 1 << 18
	maxIntermediate = 1 << 20
	maxExpertWidth  = 1 << 17
	maxExperts      = 1 << 12
	maxHeads        = 1 << 12
	maxHeadDim      = 1 << 12
	maxRank         = 1 << 16
	maxVocab        = 1 << 24
	maxContext      = 1 << 24
	maxConv         = 1 << 6
	maxExtra        = 1 << 50
)

// defaultsOf returns the class's values for missing keys as an object.
func defaultsOf(a architecture) (object, error) {
	out := object{}
	for key, value := range a.Defaults {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("hfconfig: architectures.yaml: default of %s: %w", key, err)
		}
		out[key] = raw
	}
	return out, nil
}

// shape reads the dimensions.
func (p *parser) shape(context int) model.Shape {
	s := model.Shape{
		Layers: p.required(maxLayers, "num_hidden_layers", "n_layer", "num_layers"),
		Hidden: p.required(maxHidden, "hidden_size", "n_embd", "d_model"),
		Heads:  p.required(maxHeads, "num_attention_heads", "n_head"),
		Vocab:  p.required(maxVocab, "vocab_size", "padded_vocab_size"),
		Tied:   p.tied(),
		Sinks:  p.arch.Sinks, PlainMLP: p.arch.PlainMLP,
		QKVBias: p.flag(p.arch.QKVBias), OutputBias: p.flag(p.arch.OutputBias),
		QKNorm: p.flag(p.arch.QKNorm), WideQKNorm: p.flag(p.arch.WideQKNorm),
		GatedAttention: p.flag(p.arch.GatedAttention),
	}
	// 2 is the shape's default.
	if p.arch.Norms != 2 {
		s.Norms = p.arch.Norms
	}
	p.heads(&s)
	p.layers(&s, context)
	if p.err != nil {
		return model.Shape{}
	}
	return s
}

// tied reports whether the output matrix is the embedding. That is the default of Hugging Face classes.
func (p *parser) tied() bool {
	if !p.has("tie_word_embeddings") {
		return true
	}
	return p.boolean("tie_word_embeddings")
}

// heads reads the numbers and dimensions of attention heads.
func (p *parser) heads(s *model.Shape) {
	s.KVHeads = s.Heads
	switch {
	case p.boolean("multi_query") && !p.boolean("new_decoder_architecture"):
		s.KVHeads = 1
	case p.has(kvHeadKeys()...):
		s.KVHeads = p.integer(1, maxHeads, kvHeadKeys()...)
	}
	if p.err == nil && s.Heads%s.KVHeads != 0 {
		f, _ := p.find(kvHeadKeys()...)
		p.fail(f, fmt.Sprintf("does not divide the %d attention heads", s.Heads))
	}
	if p.has("kv_lora_rank") {
		s.MLA = p.latent()
		s.HeadDim = s.MLA.NopeDim + s.MLA.RopeDim
		return
	}
	s.HeadDim = p.integer(1, maxHeadDim, "head_dim", "attention_head_dim", "kv_channels")
	if p.err == nil && s.HeadDim == 0 {
		s.HeadDim = s.Hidden / s.Heads
	}
	if p.err == nil && (s.HeadDim == 0 || s.HeadDim > maxHeadDim) {
		f, _ := p.find("hidden_size", "n_embd", "d_model")
		p.fail(f, fmt.Sprintf("is incompatible with %d attention heads", s.Heads))
	}
	if value := p.integer(1, maxHeadDim, "v_head_dim"); value != s.HeadDim {
		s.ValueDim = value
	}
}

func kvHeadKeys() []string {
	return []string{"num_key_value_heads", "multi_query_group_num", "num_kv_heads", "n_head_kv"}
}

// latent reads multi-head latent attention. A query head has two parts, and its dimension is their sum.
func (p *parser) latent() *model.MLA {
	m := &model.MLA{
		KVRank:   p.required(maxRank, "kv_lora_rank"),
		RopeDim:  p.required(maxHeadDim/2, "qk_rope_head_dim"),
		QRank:    p.integer(0, maxRank, "q_lora_rank"),
		NopeDim:  p.required(maxHeadDim/2, "qk_nope_head_dim"),
		ValueDim: p.required(maxHeadDim, "v_head_dim"),
	}
	if p.has("index_n_heads") {
		m.IndexHeads = p.required(maxHeads, "index_n_heads")
		m.IndexDim = p.required(maxHeadDim, "index_head_dim")
	}
	return m
}

// intermediate reads the width of a dense MLP.
func (p *parser) intermediate(hidden int) int {
	keys := []string{"intermediate_size", "ffn_hidden_size", "n_inner"}
	if p.arch.DenseKey != "" {
		keys = []string{p.arch.DenseKey}
	}
	if p.arch.DenseFactor > 0 && !p.has(keys...) {
		return p.arch.DenseFactor * hidden
	}
	return p.required(maxIntermediate, keys...)
}

// experts reads a mixture of experts; nil if there is none.
func (p *parser) experts() *model.MoE {
	count := p.integer(0, maxExperts, "num_experts", "num_local_experts", "n_routed_experts")
	if count == 0 {
		return nil
	}
	width := []string{"moe_intermediate_size", "intermediate_size"}
	if p.arch.ExpertKey != "" {
		width = []string{p.arch.ExpertKey}
	}
	m := &model.MoE{
		Experts:      count,
		TopK:         p.required(count, "num_experts_per_tok", "moe_topk", "top_k_experts", "experts_per_token"),
		Intermediate: p.required(maxExpertWidth, width...),
		Bias:         p.arch.ExpertBias,
		LatentDim:    p.integer(0, maxHidden, "moe_latent_size"),
	}
	m.SharedIntermediate = p.shared(m.Intermediate)
	m.SharedGate = p.arch.SharedGate && m.SharedIntermediate > 0
	return m
}

// shared reads the width of the shared experts.
func (p *parser) shared(expert int) int {
	keys := []string{"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"}
	if p.arch.SharedKey != "" {
		keys = []string{p.arch.SharedKey}
	}
	if p.has(keys...) {
		return p.integer(0, maxIntermediate, keys...)
	}
	// The limit keeps the product of count and width below 1<<20.
	return p.integer(0, maxIntermediate/maxExpertWidth, "n_shared_experts") * expert
}
