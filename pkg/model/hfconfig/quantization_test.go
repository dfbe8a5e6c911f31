// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/model/hfconfig"
)

type keys = map[string]any

func TestQuantization(t *testing.T) {
	compressed := func(weights keys, ignore ...string) keys {
		return keys{
			"quant_method": "compressed-tensors", "ignore": ignore,
			"config_groups": keys{"group_1": keys{"weights": keys{"num_bits": 2}}, "group_0": keys{"weights": weights}},
		}
	}
	for _, tc := range []struct {
		reason string
		config keys
		side   string
		want   string
	}{
		{"block scales", keys{"quant_method": "fp8", "weight_block_size": []int{128, 128}}, "", "fp8"},
		{"scales of a tensor", keys{"quant_method": "fp8", "weight_block_size": nil}, "", "fp8-channel"},
		{"AWQ", keys{"quant_method": "awq", "bits": 4, "group_size": 128}, "", "awq"},
		{"older AWQ", keys{"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "", "awq"},
		{"GPTQ", keys{"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true}, "", "gptq-int4"},
		{"GPTQ of 8 bits", keys{"quant_method": "gptq", "bits": 8, "group_size": 128}, "", "int8"},
		{"AutoRound packed as AWQ", keys{"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_awq"}, "", "awq"},
		{"AutoRound packed as GPTQ", keys{"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"}, "", "gptq-int4"},
		{"compressed fp8 of channels", compressed(keys{"num_bits": 8, "type": "float", "strategy": "channel"}), "", "fp8-channel"},
		{"compressed fp8 of blocks", compressed(keys{"num_bits": 8, "type": "float", "strategy": "block"}), "", "fp8"},
		{"compressed int8", compressed(keys{"num_bits": 8, "type": "int", "strategy": "channel"}), "", "int8"},
		{"compressed int4", compressed(keys{"num_bits": 4, "type": "int", "group_size": 128}, "lm_head"), "", "w4a16"},
		{"compressed int4 of experts", compressed(keys{"num_bits": 4, "type": "int", "group_size": 32}, "re:.*self_attn.*"), "", "int4-experts"},
		{"compressed nvfp4", compressed(keys{"num_bits": 4, "type": "float", "group_size": 16}), "", "nvfp4"},
		{"compressed mxfp4", compressed(keys{"num_bits": 4, "type": "float", "group_size": 32}), "", "mxfp4"},
		{"mxfp4", keys{"quant_method": "mxfp4"}, "", "mxfp4"},
		{"bitsandbytes of 4 bits", keys{"quant_method": "bitsandbytes", "load_in_4bit": true, "_load_in_8bit": false}, "", "nf4"},
		{"bitsandbytes of 8 bits", keys{"quant_method": "bitsandbytes", "load_in_8bit": true}, "", "int8"},
		{"ModelOpt", keys{"quant_method": "modelopt", "quant_algo": "NVFP4"}, "", "nvfp4"},
		{"ModelOpt's own file", nil, `{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}`, "fp8-channel"},
		{"the config wins over the file", keys{"quant_method": "mxfp4"}, `{"quantization": {"quant_algo": "FP8"}}`, "mxfp4"},
		{"a file that says nothing", nil, `{"quantization": {"quant_algo": null}}`, "bf16"},
		{"layers of different formats", nil, `{"quantization": {"quant_algo": "MIXED_PRECISION"}}`, "nvfp4"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			changes := keys{"quantization_config": tc.config}
			if tc.config == nil {
				changes = nil
			}
			got, err := hfconfig.ParseFiles(hfconfig.Files{Config: edited(t, "qwen2.5-7b", changes), Quantization: []byte(tc.side)})
			if err != nil || got.Quantization != tc.want {
				t.Errorf("quantization = %q, %v; want %q", got.Quantization, err, tc.want)
			}
		})
	}
}

func TestDtype(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		changes keys
		want    string
		notes   []string
	}{
		{"the newer key wins", keys{"dtype": "float16"}, "fp16", nil},
		{"as PyTorch writes it", keys{"torch_dtype": "torch.bfloat16"}, "bf16", nil},
		{"32 bits", keys{"torch_dtype": "float32"}, "fp16", []string{"the weights are stored in 32 bits, and vLLM loads them in 16"}},
		{"none", keys{"torch_dtype": nil}, "bf16", []string{"no dtype is given: bf16 is assumed"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := hfconfig.Parse(edited(t, "qwen2.5-7b", tc.changes))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Quantization) + cmp.Diff(tc.notes, got.Notes); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
		})
	}
}

// Weights in 32 bits are fetched whole, and half of their bytes are loaded.
func TestWeightsIn32BitsAreLoadedIn16(t *testing.T) {
	for _, tc := range []struct {
		reason, index string
		changes       keys
		idle          int64
	}{
		{"half of them", `{"metadata": {"total_size": 30462466048}}`, keys{"torch_dtype": "float32"}, 15231233024},
		{
			"and a copy of the embedding, which takes twice the bytes too",
			`{"metadata": {"total_size": 30462466048}, "weight_map": {"lm_head.weight": "a"}}`,
			keys{"torch_dtype": "float32", "tie_word_embeddings": true},
			(30462466048 + 4*152064*3584) / 2,
		},
		{"none of 16 bits", `{"metadata": {"total_size": 15231233024}}`, keys{"torch_dtype": "float16"}, 0},
	} {
		facts, err := hfconfig.ParseFiles(hfconfig.Files{Config: edited(t, "qwen2.5-7b", tc.changes), Tensors: tensors(t, tc.index)})
		if err != nil {
			t.Fatal(err)
		}
		if facts.Quantization != "fp16" || facts.IdleBytes != tc.idle {
			t.Errorf("%s: %s with %d idle bytes, want fp16 with %d", tc.reason, facts.Quantization, facts.IdleBytes, tc.idle)
		}
	}
}

// Smaller groups of weights have more scales. Of the 7,615,616,512 parameters, 6,525,288,448 are in linear layers.
func TestGroupsDecideTheSize(t *testing.T) {
	const linears, others = 6_525_288_448, 7_615_616_512 - 6_525_288_448
	asymmetric := func(group int) keys {
		return keys{"quant_method": "compressed-tensors", "config_groups": keys{"group_0": keys{"weights": keys{
			"num_bits": 4, "type": "int", "strategy": "group", "group_size": group, "symmetric": false,
		}}}}
	}
	for _, tc := range []struct {
		reason string
		config keys
		want   float64
	}{
		{"the usual size is the format's", keys{"quant_method": "awq", "bits": 4, "group_size": 128}, 0},
		{"AWQ of 64", keys{"quant_method": "awq", "bits": 4, "group_size": 64}, 0.5 + 2.5/64},
		{"GPTQ of 32", keys{"quant_method": "gptq", "bits": 4, "group_size": 32}, 0.5 + 2.5/32},
		{"GPTQ of whole channels", keys{"quant_method": "gptq", "bits": 4, "group_size": -1}, 0.5},
		{"compressed, with zeros", asymmetric(32), 0.5 + 2.5/32},
		{"compressed, without", keys{"quant_method": "compressed-tensors", "config_groups": keys{"group_0": keys{"weights": keys{
			"num_bits": 4, "type": "int", "group_size": 64, "symmetric": true,
		}}}}, 0.5 + 2.0/64},
	} {
		facts, err := hfconfig.Parse(edited(t, "qwen2.5-7b", keys{"quantization_config": tc.config}))
		if err != nil {
			t.Fatal(err)
		}
		want := int64(linears*tc.want + 2*others)
		if tc.want == 0 {
			want = 0
		}
		if off := facts.EstimatedBytes - want; off > 20_000_000 || off < -20_000_000 {
			t.Errorf("%s: %d bytes, want about %d", tc.reason, facts.EstimatedBytes, want)
		}
		if m := facts.Model("org/m", "main"); m.Artifacts[0].WeightBytes != facts.EstimatedBytes || m.Artifacts[0].BytesExact() {
			t.Errorf("%s: the artifact has %d bytes, exact %v", tc.reason, m.Artifacts[0].WeightBytes, m.Artifacts[0].BytesExact())
		}
	}
}

func TestIndex(t *testing.T) {
	type weights struct{ Bytes, Idle int64 }
	for _, tc := range []struct {
		reason, config, index string
		want                  weights
	}{
		{"the sum of all tensors", "qwen2.5-7b", `{"metadata": {"total_size": 15231233024}, "weight_map": {"lm_head.weight": "a"}}`, weights{15231233024, 0}},
		{"a number that was written as a float", "qwen2.5-7b", `{"metadata": {"total_size": 15231233024.0}}`, weights{15231233024, 0}},
		{"no sum", "qwen2.5-7b", `{"metadata": {}, "weight_map": {}}`, weights{}},
		{
			"a stored copy of a tied embedding", "qwen2.5-0.5b-awq-yarn",
			`{"metadata": {"total_size": 730000000}, "weight_map": {"lm_head.weight": "a", "model.embed_tokens.weight": "a"}}`,
			weights{730000000, 2 * 151936 * 896},
		},
		{
			"a layer for speculative decoding, the encoder's layers do not count", "deepseek-v3",
			`{"metadata": {"total_size": 688586727424}, "weight_map": {"model.layers.60.mlp.gate.weight": "a",
				"model.layers.61.eh_proj.weight": "a", "model.layers.61.mlp.gate.weight": "a", "vision_tower.layers.70.weight": "a"}}`,
			weights{688586727424, 11_711_246_726},
		},
		{
			"one that is named for what it does", "qwen3-next-80b",
			`{"metadata": {"total_size": 162646000000}, "weight_map": {"mtp.layers.0.mlp.gate.weight": "a", "mtp.fc.weight": "a"}}`,
			weights{162646000000, 3_300_855_202},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			facts, err := hfconfig.ParseFiles(hfconfig.Files{Config: read(t, tc.config), Tensors: tensors(t, tc.index)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, weights{facts.WeightBytes, facts.IdleBytes}); diff != "" {
				t.Errorf("weights (-want +got):\n%s", diff)
			}
		})
	}
}

// Mixtures in NVFP4 keep attention in 16 bits, unless the config's list of excluded parts does not contain attention.
func TestMixturesInFourBitsKeepAttention(t *testing.T) {
	modelopt := func(excluded ...string) keys {
		config := keys{"quant_method": "modelopt", "quant_algo": "NVFP4"}
		if len(excluded) > 0 {
			config["ignore"] = excluded
		}
		return keys{"quantization_config": config}
	}
	bytes := func(name string, changes keys) int64 {
		facts, err := hfconfig.ParseFiles(hfconfig.Files{Config: edited(t, name, changes)})
		if err != nil {
			t.Fatal(err)
		}
		return facts.EstimatedBytes
	}
	const experts, others = 48 * 128 * 3 * 2048 * 768, 1_541_093_376
	const want = experts*9/16 + 2*others
	for _, tc := range []struct {
		reason  string
		changes keys
		want    int64
	}{
		{"nothing is said", modelopt(), want},
		{"attention is left out", modelopt("lm_head", "model.layers.*.self_attn*"), want},
		{"attention is not left out", modelopt("lm_head"), 0},
	} {
		if got := bytes("qwen3-30b-a3b", tc.changes); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.reason, got, tc.want)
		}
	}
	if got := bytes("qwen2.5-7b", modelopt()); got != 0 {
		t.Errorf("a model without experts has %d bytes, want those of the format", got)
	}
}
