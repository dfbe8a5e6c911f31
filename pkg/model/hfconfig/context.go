// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import "fmt"

// fallbackContext is vLLM's context in tokens for configs without one.
const fallbackContext = 2048

// context derives the longest sequence in tokens as vLLM does (get_and_verify_max_len). It takes the smallest value of
// the keys, and multiplies it by rope scaling unless the published number includes that.
func (p *parser) context() int {
	tokens := 0
	for _, key := range []string{
		"max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
		"max_sequence_length", "max_seq_length", "seq_len",
	} {
		if n := p.integer(1, maxContext, key); n > 0 && (tokens == 0 || n < tokens) {
			tokens = n
		}
	}
	if tokens == 0 {
		tokens = fallbackContext
		p.note("no key has the maximum sequence length: %d tokens are assumed, as in vLLM", tokens)
	}
	tokens = p.stretched(tokens)
	// vLLM lets a user request a longer model_max_length.
	if longer := p.integer(1, maxContext, "model_max_length"); longer > tokens {
		p.note("the context is model_max_length, %d tokens, although the other keys allow only %d", longer, tokens)
		tokens = longer
	}
	return tokens
}

// stretched applies rope scaling to a number of tokens.
func (p *parser) stretched(tokens int) int {
	f, ok := p.find("rope_scaling", "rope_parameters")
	if !ok || p.err != nil || p.arch.ContextScaled {
		return tokens
	}
	scaling := object{"": f.raw}.sub("")
	if scaling == nil {
		p.fail(f, "must be an object")
		return tokens
	}
	// Parameters may differ between kinds of layers. The ones for full attention count.
	if full := scaling.sub("full_attention"); full != nil {
		scaling, f.field = full, f.field+".full_attention"
	}
	r := &reader{file: p.file, levels: []level{{f.field + ".", scaling}}}
	kind, factor := r.text("rope_type", "type"), r.number(maxHeads, "factor")
	original := r.integer(1, maxContext, "original_max_position_embeddings")
	if r.err != nil {
		p.err = r.err
		return tokens
	}
	switch kind {
	case "su", "longrope", "llama3": // published lengths include the scaling
		return tokens
	case "yarn", "deepseek_yarn":
		if original > 0 && factor > 0 {
			tokens = original
		}
	}
	if factor > 0 {
		stretched := float64(tokens) * factor
		if stretched < 1 || stretched > maxContext {
			g, _ := r.find("factor")
			p.fail(g, fmt.Sprintf("turns %d tokens into %.0f: a context must have 1 to %d", tokens, stretched, maxContext))
			return tokens
		}
		tokens = int(stretched)
	}
	return tokens
}
