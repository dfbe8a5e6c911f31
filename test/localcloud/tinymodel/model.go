// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package tinymodel

import "fmt"

// If the local hub offers the model.
const (
	Repo = "modelberth/tiny-chat-GGUF"
	File = "tiny-chat-f16.gguf"
)

// The model's shape, as a catalogue states it.
const (
	Layers        = 2
	Hidden        = 64
	Intermediate  = 384
	Heads         = 4
	KVHeads       = 2
	HeadDim       = Hidden / Heads
	ContextLength = 8192
)

// Special tokens, in the order of the llama vocabulary.
const (
	tokenUnknown = iota
	tokenBegin
	tokenEnd
	firstByte
	byteTokens = 256
	firstWord  = firstByte + byteTokens
)

// Token types of GGUF.
const (
	kindNormal  = 1
	kindUnknown = 2
	kindControl = 3
	kindByte    = 6
)

// chatTemplate turns messages into a prompt.
const chatTemplate = `{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}` +
	`{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}`

// words is the model's vocabulary of whole words. Each begins with the mark for a space, so an answer reads as words.
func words() []string {
	return []string{
		"anchor", "arrives", "at", "bay", "beacon", "before", "berth", "bright", "buoy", "calm",
		"cargo", "chart", "coast", "crane", "crew", "current", "dawn", "deck", "deep", "dock",
		"drifts", "east", "ferry", "fog", "follows", "gull", "harbour", "haul", "hull", "island",
		"keel", "lantern", "light", "low", "mast", "moors", "near", "night", "north", "over",
		"past", "pier", "pilot", "quay", "quiet", "reef", "returns", "river", "rope", "sails",
		"shore", "signal", "slow", "south", "star", "the", "tide", "tug", "under", "waits", "wind",
	}
}

// Vocabulary is the number of tokens.
func Vocabulary() int { return firstWord + len(words()) }

// Bytes returns the model file. It is the same every time and everywhere.
func Bytes() []byte {
	w := &writer{}
	describe(w)
	tokenize(w)
	weights(w)
	return w.bytes()
}

func describe(w *writer) {
	w.text("general.architecture", "llama")
	w.text("general.name", "Modelberth tiny chat")
	w.text("general.license", "apache-2.0")
	w.number("general.file_type", 1) // mostly f16
	w.number("llama.context_length", ContextLength)
	w.number("llama.embedding_length", Hidden)
	w.number("llama.block_count", Layers)
	w.number("llama.feed_forward_length", Intermediate)
	w.number("llama.attention.head_count", Heads)
	w.number("llama.attention.head_count_kv", KVHeads)
	w.float("llama.attention.layer_norm_rms_epsilon", 1e-5)
	w.number("llama.rope.dimension_count", HeadDim)
	w.float("llama.rope.freq_base", 10000)
	w.number("llama.vocab_size", uint32(Vocabulary()))
}

// vocabulary is the tokens in their order, and the kind of each.
func vocabulary() (tokens []string, kinds []int32) {
	tokens = []string{"<unk>", "<s>", "</s>"}
	kinds = []int32{kindUnknown, kindControl, kindControl}
	for b := range byteTokens {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", b))
		kinds = append(kinds, kindByte)
	}
	for _, word := range words() {
		tokens = append(tokens, "\u2581"+word)
		kinds = append(kinds, kindNormal)
	}
	return tokens, kinds
}

func tokenize(w *writer) {
	tokens, kinds := vocabulary()
	w.text("tokenizer.ggml.model", "llama")
	w.texts("tokenizer.ggml.tokens", tokens)
	w.floats("tokenizer.ggml.scores", make([]float32, len(tokens)))
	w.ints("tokenizer.ggml.token_type", kinds)
	w.number("tokenizer.ggml.unknown_token_id", tokenUnknown)
	w.number("tokenizer.ggml.bos_token_id", tokenBegin)
	w.number("tokenizer.ggml.eos_token_id", tokenEnd)
	w.flag("tokenizer.ggml.add_bos_token", true)
	w.flag("tokenizer.ggml.add_space_prefix", false)
	w.text("tokenizer.chat_template", chatTemplate)
}

// Scales of the random weights, as the power of two divided into a value of up to 1023. Larger ones than a trained
// model's keep the layers' part in the answer visible.
const (
	scaleEmbedding = 10
	scaleLayer     = 12
	scaleOutput    = 11
)

func weights(w *writer) {
	r := &source{state: seed}
	vocabulary := uint64(Vocabulary())
	w.tensor("token_embd.weight", tensorF16, r.matrix(Hidden*int(vocabulary), scaleEmbedding), Hidden, vocabulary)
	w.tensor("output_norm.weight", tensorF32, ones(), Hidden)
	w.tensor("output.weight", tensorF16, output(r), Hidden, vocabulary)
	for layer := range Layers {
		block(w, r, fmt.Sprintf("blk.%d.", layer))
	}
}

func block(w *writer, r *source, prefix string) {
	matrix := func(name string, in, out int) {
		w.tensor(prefix+name+".weight", tensorF16, r.matrix(in*out, scaleLayer), uint64(in), uint64(out))
	}
	w.tensor(prefix+"attn_norm.weight", tensorF32, ones(), Hidden)
	matrix("attn_q", Hidden, Hidden)
	matrix("attn_k", Hidden, KVHeads*HeadDim)
	matrix("attn_v", Hidden, KVHeads*HeadDim)
	matrix("attn_output", Hidden, Hidden)
	w.tensor(prefix+"ffn_norm.weight", tensorF32, ones(), Hidden)
	matrix("ffn_gate", Hidden, Intermediate)
	matrix("ffn_up", Hidden, Intermediate)
	matrix("ffn_down", Intermediate, Hidden)
}

// output gives rows to the words and to the end only: bytes would be read as
// broken text, so their logits stay 0 and a word always wins.
func output(r *source) []uint16 {
	out := make([]uint16, Hidden*Vocabulary())
	copy(out[tokenEnd*Hidden:], r.matrix(Hidden, scaleOutput))
	copy(out[firstWord*Hidden:], r.matrix(Hidden*len(words()), scaleOutput))
	return out
}

func ones() []float32 {
	v := make([]float32, Hidden)
	for i := range v {
		v[i] = 1
	}
	return v
}

// source is splitmix64, written out because a library's generator may change.
type source struct{ state uint64 }

// seed is the first one tried: with it the answer to "Hello!" has nine tokens, and each wins by more than another
// CPU's rounding could change.
const seed = 1

func (s *source) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s *source) matrix(n, scale int) []uint16 {
	m := make([]uint16, n)
	for i := range m {
		m[i] = half(int32(s.next()%2047)-1023, scale)
	}
	return m
}
