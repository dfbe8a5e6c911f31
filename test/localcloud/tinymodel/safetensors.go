// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package tinymodel

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// CheckpointRepo is the local hub's repository of the model in the format of Hugging Face's libraries.
const CheckpointRepo = "modelberth/tiny-chat-vllm"

// CheckpointLayers are enough for a stage on each of four machines.
const CheckpointLayers = 4

// Checkpoint returns a model of the same shape and vocabulary, except for its layers, as files of a Hugging Face
// repository: configuration, tokenizer, and weights in two safetensors files with an index. The weights differ from the
// GGUF file's.
func Checkpoint() (map[string][]byte, error) {
	files := map[string][]byte{"README.md": []byte(readme)}
	weightMap, total := map[string]string{}, 0
	for i, shard := range shards() {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards()))
		data, err := safetensors(shard)
		if err != nil {
			return nil, err
		}
		files[name] = data
		for _, t := range shard {
			weightMap[t.name] = name
			total += 2 * len(t.data)
		}
	}
	for name, content := range map[string]any{
		"config.json":            checkpointConfig(),
		"generation_config.json": map[string]any{"bos_token_id": tokenBegin, "eos_token_id": tokenEnd},
		"tokenizer.json":         tokenizerFile(),
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": ContextLength, "add_bos_token": true,
			"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": chatTemplate,
		},
		"model.safetensors.index.json": map[string]any{"metadata": map[string]int{"total_size": total}, "weight_map": weightMap},
	} {
		data, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", name, err)
		}
		files[name] = append(data, '\n')
	}
	return files, nil
}

const readme = `---
license: apache-2.0
---
# Modelberth tiny chat

Random weights, for tests.
`

func checkpointConfig() map[string]any {
	return map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": "float16", "hidden_act": "silu",
		"hidden_size": Hidden, "intermediate_size": Intermediate, "num_hidden_layers": CheckpointLayers,
		"num_attention_heads": Heads, "num_key_value_heads": KVHeads, "head_dim": HeadDim,
		"max_position_embeddings": ContextLength, "vocab_size": Vocabulary(), "tie_word_embeddings": false,
		"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": tokenBegin, "eos_token_id": tokenEnd,
	}
}

// tokenizerFile has the vocabulary of the GGUF file, for a byte-fallback tokenizer without merges.
func tokenizerFile() map[string]any {
	vocab := map[string]int{}
	tokens, _ := vocabulary()
	for id, token := range tokens {
		vocab[token] = id
	}
	added := []map[string]any{}
	for id, token := range tokens[:firstByte] {
		added = append(added, map[string]any{
			"id": id, "content": token, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		})
	}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "post_processor": nil,
		"normalizer":    map[string]any{"type": "Replace", "pattern": map[string]string{"String": " "}, "content": "\u2581"},
		"pre_tokenizer": map[string]any{"type": "Split", "pattern": map[string]string{"Regex": "\u2581[a-z]+"}, "behavior": "Isolated", "invert": false},
		"decoder": map[string]any{"type": "Sequence", "decoders": []map[string]any{
			{"type": "Replace", "pattern": map[string]string{"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
		}},
		"model": map[string]any{
			"type": "BPE", "vocab": vocab, "merges": []string{}, "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true, "ignore_merges": true,
		},
	}
}

// tensor is a matrix of half-precision numbers, or a vector.
type tensor struct {
	name  string
	shape []int
	data  []uint16
}

// checkpointSeed differs from the GGUF file's.
const checkpointSeed = 2

// shards are the tensors of both files: the first layer with everything before it, and the rest.
func shards() [][]tensor {
	r := &source{state: checkpointSeed}
	matrix := func(name string, out, in, scale int) tensor {
		return tensor{name: name, shape: []int{out, in}, data: r.matrix(out*in, scale)}
	}
	norm := func(name string) tensor {
		t := tensor{name: name, shape: []int{Hidden}, data: make([]uint16, Hidden)}
		for i := range t.data {
			t.data[i] = half(1, 0)
		}
		return t
	}
	layer := func(n int) []tensor {
		at := fmt.Sprintf("model.layers.%d.", n)
		return []tensor{
			norm(at + "input_layernorm.weight"),
			matrix(at+"mlp.down_proj.weight", Hidden, Intermediate, scaleLayer),
			matrix(at+"mlp.gate_proj.weight", Intermediate, Hidden, scaleLayer),
			matrix(at+"mlp.up_proj.weight", Intermediate, Hidden, scaleLayer),
			norm(at + "post_attention_layernorm.weight"),
			matrix(at+"self_attn.k_proj.weight", KVHeads*HeadDim, Hidden, scaleLayer),
			matrix(at+"self_attn.o_proj.weight", Hidden, Hidden, scaleLayer),
			matrix(at+"self_attn.q_proj.weight", Hidden, Hidden, scaleLayer),
			matrix(at+"self_attn.v_proj.weight", KVHeads*HeadDim, Hidden, scaleLayer),
		}
	}
	first := append([]tensor{matrix("model.embed_tokens.weight", Vocabulary(), Hidden, scaleEmbedding)}, layer(0)...)
	var second []tensor
	for n := 1; n < CheckpointLayers; n++ {
		second = append(second, layer(n)...)
	}
	second = append(second, norm("model.norm.weight"), matrix("lm_head.weight", Vocabulary(), Hidden, scaleOutput))
	return [][]tensor{first, second}
}

// safetensors is the file format: the length of a JSON header, the header, and the data.
func safetensors(tensors []tensor) ([]byte, error) {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	entries := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var data bytes.Buffer
	for _, t := range tensors {
		begin := data.Len()
		put(&data, t.data)
		entries[t.name] = entry{DType: "F16", Shape: t.shape, Offsets: [2]int{begin, data.Len()}}
	}
	header, err := json.Marshal(entries)
	if err != nil {
		return nil, fmt.Errorf("encoding a safetensors header: %w", err)
	}
	// Data begins at a multiple of 8.
	header = append(header, bytes.Repeat([]byte(" "), (8-len(header)%8)%8)...)
	var out bytes.Buffer
	put(&out, uint64(len(header)))
	out.Write(header)
	out.Write(data.Bytes())
	return out.Bytes(), nil
}
