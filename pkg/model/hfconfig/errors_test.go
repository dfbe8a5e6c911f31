// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/model/hfconfig"
)

// Users read these messages. Each has the field, the value and the requirement.
func TestBadFiles(t *testing.T) {
	with := func(config string, changes keys) hfconfig.Files {
		return hfconfig.Files{Config: edited(t, config, changes)}
	}
	raw := func(config string) hfconfig.Files { return hfconfig.Files{Config: []byte(config)} }
	beside := func(side string) hfconfig.Files {
		return hfconfig.Files{Config: read(t, "qwen2.5-7b"), Quantization: []byte(side)}
	}
	huge := json.RawMessage("1" + strings.Repeat("0", 60))
	for _, tc := range []struct {
		reason string
		files  hfconfig.Files
		want   string
	}{
		{"empty", raw(""), "config.json is not JSON: unexpected end of JSON input, after 0 bytes"},
		{"cut", raw(`{"model_type": "qwen2"`), "config.json is not JSON: unexpected end of JSON input, after 22 bytes"},
		{"a page", raw(`<html>`), "config.json is not JSON: invalid character '<' looking for beginning of value, after 1 bytes"},
		{"a list", raw(`[1]`), "config.json is not a JSON object"},
		{"null", raw(`null`), "config.json is not a JSON object"},
		{"large", hfconfig.Files{Config: bytes.Repeat([]byte(" "), 1<<20+1)}, "config.json has 1048577 bytes; at most 1048576 are read"},
		{"no type", raw(`{}`), "config.json: model_type is missing"},
		{"no heads", with("qwen2.5-7b", keys{"num_attention_heads": 0}), "config.json: num_attention_heads: 0 must be a whole number from 1 to 4096"},
		{"10^9 layers", with("qwen2.5-7b", keys{"num_hidden_layers": 1000000000}), "config.json: num_hidden_layers: 1000000000 must be a whole number from 1 to 4096"},
		{"a negative size", with("qwen2.5-7b", keys{"hidden_size": -1}), "config.json: hidden_size: -1 must be a whole number from 1 to 262144"},
		{"a huge size", with("qwen2.5-7b", keys{"vocab_size": huge}), "config.json: vocab_size: 1000000000000000000000000000000000000000… must be a whole number from 1 to 16777216"},
		{"half a layer", with("qwen2.5-7b", keys{"num_hidden_layers": 2.5}), "config.json: num_hidden_layers: 2.5 must be a whole number from 1 to 4096"},
		{"a text for a number", with("qwen2.5-7b", keys{"hidden_size": "3584"}), `config.json: hidden_size: "3584" must be a whole number from 1 to 262144`},
		{"a list for a number", with("qwen2.5-7b", keys{"intermediate_size": []int{1, 2}}), "config.json: intermediate_size: [1,2] must be a whole number from 1 to 1048576"},
		{"not a number", raw(strings.Replace(string(read(t, "qwen2.5-7b")), "3584", "NaN", 1)), `config.json: hidden_size: "NaN" must be a whole number from 1 to 262144`},
		{"no hidden size", with("qwen2.5-7b", keys{"hidden_size": nil}), "config.json: hidden_size is missing, and so are its other names [n_embd d_model]"},
		{"null hidden size", with("gemma-3-4b", keys{"text_config.hidden_size": json.RawMessage("null")}), "config.json: hidden_size is missing, and so are its other names [n_embd d_model]"},
		{"a nested field", with("gemma-3-4b", keys{"text_config.num_hidden_layers": 0}), "config.json: text_config.num_hidden_layers: 0 must be a whole number from 1 to 4096"},
		{"KV heads that do not divide", with("qwen2.5-7b", keys{"num_key_value_heads": 5}), "config.json: num_key_value_heads: 5 does not divide the 28 attention heads"},
		{"more heads than dimensions", with("qwen2.5-7b", keys{"hidden_size": 14, "num_key_value_heads": 28}), "config.json: hidden_size: 14 is incompatible with 28 attention heads"},
		{"a truth that is a number", with("qwen2.5-7b", keys{"tie_word_embeddings": 1}), "config.json: tie_word_embeddings: 1 must be true or false"},
		{"more experts at work than there are", with("qwen3-30b-a3b", keys{"num_experts_per_tok": 129}), "config.json: num_experts_per_tok: 129 must be a whole number from 1 to 128"},
		{"too many experts", with("qwen3-30b-a3b", keys{"num_experts": 1 << 20}), "config.json: num_experts: 1048576 must be a whole number from 0 to 4096"},
		{"a layer that is none", with("qwen3-30b-a3b", keys{"mlp_only_layers": []int{48}}), "config.json: mlp_only_layers[0]: 48 is none of the 48 layers"},
		{"layers without a type", with("gpt-oss-20b", keys{"num_hidden_layers": 25}), "config.json: layer_types has 24 entries for 25 layers"},
		{"an unknown layer", with("gpt-oss-20b", keys{"num_hidden_layers": 1, "layer_types": []string{"conv"}}), `config.json: layer_types[0]: "conv" is an unknown kind of layer`},
		{"an unknown block", with("qwen2.5-7b", keys{"hybrid_override_pattern": strings.Repeat("*", 27) + "X"}), `config.json: hybrid_override_pattern[27]: "X" is an unknown kind of layer`},
		{"layers with experts that nobody counts", with("qwen2.5-7b", keys{"hybrid_override_pattern": strings.Repeat("E", 28)}), "config.json: num_experts is missing, and so are its other names [num_local_experts n_routed_experts]"},
		{"layers with no experts", with("qwen2.5-7b", keys{"hybrid_override_pattern": strings.Repeat("E", 28), "num_experts": 0}), "config.json: num_experts: 0 must be a whole number from 1 to 4096"},
		{"an unknown attention", with("minimax-m2", keys{"attn_type_list": []int{1, 0}}), "config.json: attn_type_list[1]: 0 is an unknown kind of attention: only 1 is known"},
		{"latent attention without a part", with("deepseek-v3", keys{"qk_rope_head_dim": nil}), "config.json: qk_rope_head_dim is missing"},
		{"a context of nothing", with("qwen2.5-7b", keys{"max_position_embeddings": 0}), "config.json: max_position_embeddings: 0 must be a whole number from 1 to 16777216"},
		{"an absurd factor", with("qwen2.5-7b", keys{"rope_scaling": keys{"rope_type": "linear", "factor": 4000}}), "config.json: rope_scaling.factor: 4000 turns 32768 tokens into 131072000: a context must have 1 to 16777216"},
		{"a negative factor", with("qwen2.5-7b", keys{"rope_scaling": keys{"rope_type": "linear", "factor": -4}}), "config.json: rope_scaling.factor: -4 must be a number above 0 and at most 4096"},
		{"scaling that is a text", with("qwen2.5-7b", keys{"rope_scaling": "yarn"}), `config.json: rope_scaling: "yarn" must be an object`},
		{"an encoder without layers", with("gemma-3-4b", keys{"vision_config.num_hidden_layers": 0}), "config.json: vision_config.num_hidden_layers: 0 must be a whole number from 1 to 1024"},
		{"an unknown format", with("qwen2.5-7b", keys{"quantization_config": keys{"quant_method": "aqlm"}}), `config.json: quantization_config.quant_method: "aqlm" is not a supported format of weights`},
		{"no format", with("qwen2.5-7b", keys{"quantization_config": keys{"bits": 4}}), "config.json: quantization_config.quant_method is not a supported format of weights"},
		{"3 bits", with("qwen2.5-7b", keys{"quantization_config": keys{"quant_method": "gptq", "bits": 3}}), "config.json: quantization_config.bits: 3 is not a supported width: use 4 or 8"},
		{"no group", with("qwen2.5-7b", keys{"quantization_config": keys{"quant_method": "compressed-tensors"}}), "config.json: quantization_config.config_groups must describe a group of weights"},
		{"an unknown dtype", with("qwen2.5-7b", keys{"torch_dtype": "complex64"}), `config.json: torch_dtype: "complex64" is not a supported type of weights: use bfloat16, float16 or float32`},
		{"an unknown algorithm", beside(`{"quantization": {"quant_algo": "INT2"}}`), `hf_quant_config.json: quantization.quant_algo: "INT2" is not a supported format of weights`},
		{"a broken side file", beside(`{`), "hf_quant_config.json is not JSON: unexpected end of JSON input, after 1 bytes"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := hfconfig.ParseFiles(tc.files)
			if !errors.As(err, new(*hfconfig.FieldError)) || err.Error() != tc.want {
				t.Errorf("ParseFiles() error = %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestBadIndex(t *testing.T) {
	const bounds = "must be a whole number from 1 to 8796093022208"
	for _, tc := range []struct{ reason, index, want string }{
		{"weights of less than nothing", `{"metadata": {"total_size": -5}}`, "metadata.total_size: -5 " + bounds},
		{"weights as a text", `{"metadata": {"total_size": "5"}}`, `metadata.total_size: "5" ` + bounds},
		{"weights as a list", `{"metadata": {"total_size": [5]}}`, "metadata.total_size: [5] " + bounds},
		{"a list", `[1]`, " is not a JSON object"},
		{"cut", `{"weight_map": {"a"`, " is not JSON: EOF, after 19 bytes"},
		{"a page", `<html>`, " is not JSON: invalid character '<' looking for beginning of value, after 0 bytes"},
		{"two", `{}{}`, " is not JSON: { follows the document, after 3 bytes"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := hfconfig.ReadIndex(strings.NewReader(tc.index))
			want := "model.safetensors.index.json" + tc.want
			if strings.Contains(tc.want, "metadata") {
				want = "model.safetensors.index.json: " + tc.want
			}
			if !errors.As(err, new(*hfconfig.FieldError)) || err.Error() != want {
				t.Errorf("ReadIndex() error = %v\nwant %s", err, want)
			}
		})
	}
}

// tensors returns the tensors of an index.
func tensors(t *testing.T, index string) hfconfig.Tensors {
	t.Helper()
	if index == "" {
		return hfconfig.Tensors{}
	}
	out, err := hfconfig.ReadIndex(strings.NewReader(index))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUnsupported(t *testing.T) {
	for _, tc := range []struct{ reason, config, want string }{
		{
			"unknown", `{"model_type": "foo", "architectures": ["FooForCausalLM"]}`,
			`config.json: architecture "FooForCausalLM" (model_type "foo") is unknown: describe the model's shape, context and weights as an entry of models in a catalogue overlay`,
		},
		{
			"unknown inside", `{"model_type": "llava", "text_config": {"model_type": "foo"}}`,
			`config.json: model_type "foo" is unknown: describe the model's shape, context and weights as an entry of models in a catalogue overlay`,
		},
		{
			"an encoder", `{"model_type": "bert", "architectures": ["BertModel"]}`,
			`config.json: architecture "BertModel" (model_type "bert") is an encoder, which makes no text`,
		},
		{
			"an encoder with a decoder", `{"model_type": "new", "architectures": ["NewModel"], "is_encoder_decoder": true}`,
			`config.json: architecture "NewModel" (model_type "new") is an encoder-decoder model; plans support only decoder-only models`,
		},
		{
			"a pipeline of diffusion", `{"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.30.0"}`,
			`config.json: architecture "FluxTransformer2DModel" (model_type "diffusers") is a diffusion model for images, not a language model`,
		},
		{
			"a classifier", `{"model_type": "qwen2", "architectures": ["Qwen2ForSequenceClassification"]}`,
			`config.json: architecture "Qwen2ForSequenceClassification" (model_type "qwen2") returns scores, not text`,
		},
		{
			"refused by the outer type", `{"model_type": "mllama", "text_config": {"model_type": "mllama_text_model"}}`,
			`config.json: model_type "mllama_text_model" reads images through attention to them in some layers, which is not planned for`,
		},
		{
			"a name of many lines", `{"model_type": "a\nb"}`,
			`config.json: model_type "a b" is unknown: describe the model's shape, context and weights as an entry of models in a catalogue overlay`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := hfconfig.Parse([]byte(tc.config))
			if !errors.As(err, new(*hfconfig.UnsupportedError)) || err.Error() != tc.want {
				t.Errorf("Parse() error = %v\nwant %s", err, tc.want)
			}
		})
	}
}

// As in Python, the last of equal keys counts. Text in place of a number does no harm if the number is not needed.
func TestLooseJSON(t *testing.T) {
	config := strings.Replace(string(read(t, "qwen2.5-7b")), "{", `{"num_hidden_layers": 0, "limits": [-Infinity, NaN, "Infinity \" NaN"],`, 1)
	facts, err := hfconfig.Parse([]byte(config))
	if err != nil || facts.Shape.Layers != 28 {
		t.Errorf("Parse() = %d layers, %v; want 28", facts.Shape.Layers, err)
	}
}
