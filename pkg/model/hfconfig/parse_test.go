// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/model/hfconfig"
)

// read returns a config from testdata. It has the keys of a published config.json that describe the model.
func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The numbers of parameters are the publishers' figures, exact if they list every tensor. The KV bytes are from
// published start-up logs, at 16 bits, for layers that keep every token.
func TestFigures(t *testing.T) {
	type figures struct {
		Params, KVBytes int64
		Context         int
		Quantization    string
		Notes           []string
	}
	noVision := []string{
		"the engine must run the repository's code for its tokenizer",
		`the vision encoder (vision_config.model_type "") is not counted`,
	}
	for _, tc := range []struct {
		config, reason string
		want           figures
	}{
		{"llama-3.3-70b", "rope scaling that the length holds already", figures{70_553_706_496, 327_680, 131072, "bf16", nil}},
		{"qwen2.5-7b", "biases that no key mentions, and a window that is off", figures{7_615_616_512, 57_344, 32768, "bf16", nil}},
		{"qwen2.5-0.5b-awq-yarn", "YaRN stretches the original length", figures{494_032_768, 12_288, 131072, "awq", nil}},
		{"qwen3-30b-a3b", "experts in every layer", figures{30_532_122_624, 98_304, 40960, "bf16", nil}},
		{"deepseek-v3", "latent attention and a dense beginning", figures{671_026_404_352, 70_272, 163840, "fp8", nil}},
		{"gpt-oss-20b", "every other layer has a window, experts have biases", figures{20_914_757_184, 24_576, 131072, "mxfp4", nil}},
		{"gemma-3-4b", "a config that leaves most to the class", figures{4_300_079_472, 20_480, 131072, "bf16", nil}},
		{"gemma-3-27b", "five windows for each full layer, and a vision encoder", figures{27_432_406_640, 81_920, 131072, "bf16", nil}},
		{"mistral-small-3.2-24b", "another vision encoder", figures{24_011_361_280, 163_840, 131072, "bf16", nil}},
		{"phi-4", "10 KV heads", figures{14_659_507_200, 204_800, 16384, "bf16", nil}},
		{"llama-4-scout", "chunks, and an expert that works on every token", figures{108_641_793_536, 49_152, 10485760, "bf16", nil}},
		{"llama-4-maverick", "experts in every other layer", figures{401_583_781_376, 49_152, 1048576, "bf16", nil}},
		{"qwen3-next-80b", "delta nets and gated attention", figures{79_674_391_296, 24_576, 262144, "bf16", nil}},
		{"nemotron-3-nano-30b", "layers that are a mixer or experts; a key is Infinity", figures{31_577_937_344, 6_144, 262144, "bf16", nil}},
		{"kimi-k2.5", "only experts have 4 bits; the encoder is not known", figures{1_026_408_209_408, 70_272, 262144, "int4-experts", noVision}},
		{"minimax-m2", "norms over all heads", figures{228_689_748_992, 253_952, 196608, "fp8", nil}},
		{"command-r7b", "one norm in a layer, tied by default", figures{8_028_033_024, 32_768, 132096, "bf16", nil}},
		{"qwen2.5-vl-7b", "the language model's keys stand at the top", figures{8_292_166_656, 57_344, 128000, "bf16", nil}},
		{"qwen3-vl-8b", "an encoder that is tapped at three layers", figures{8_767_123_696, 147_456, 262144, "bf16", nil}},
		{"gemma-2-9b", "four norms, every other layer has a window", figures{9_241_705_984, 172_032, 8192, "bf16", nil}},
		{"olmoe-1b-7b", "as many KV heads as heads", figures{6_919_161_856, 131_072, 4096, "bf16", nil}},
		{"glm-4.5-air", "a dense layer at the beginning, no norms of queries", figures{106_852_245_504, 188_416, 131072, "bf16", nil}},
	} {
		t.Run(tc.config+": "+tc.reason, func(t *testing.T) {
			facts, err := hfconfig.Parse(read(t, tc.config))
			if err != nil {
				t.Fatal(err)
			}
			got := figures{facts.Shape.Params(), int64(facts.Shape.KVBytes(2)), facts.Context, facts.Quantization, facts.Notes}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

// These configs leave out the most.
func TestShapes(t *testing.T) {
	delta := &model.State{Conv: 4, KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128}
	for _, tc := range []struct {
		config string
		want   hfconfig.Facts
	}{
		{"gpt-oss-20b", hfconfig.Facts{
			Architecture: "GptOssForCausalLM", Type: "gpt_oss", Context: 131072, Quantization: "mxfp4",
			Shape: model.Shape{
				Layers: 24, Hidden: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Vocab: 201088,
				QKVBias: true, OutputBias: true, Sinks: true,
				MoE: &model.MoE{Experts: 32, TopK: 4, Intermediate: 2880, Bias: true},
				Pattern: []model.LayerGroup{
					{Count: 12, Mixer: model.MixerWindow, Window: 128}, {Count: 12, Mixer: model.MixerFull},
				},
			},
		}},
		{"nemotron-3-nano-30b", hfconfig.Facts{
			Architecture: "NemotronHForCausalLM", Type: "nemotron_h", Context: 262144, Quantization: "bf16",
			Shape: model.Shape{
				Layers: 52, Hidden: 2688, Heads: 32, KVHeads: 2, HeadDim: 128, Vocab: 131072, PlainMLP: true,
				MoE: &model.MoE{Experts: 128, TopK: 6, Intermediate: 1856, SharedIntermediate: 3712},
				Pattern: []model.LayerGroup{
					{
						Count: 23, Mixer: model.MixerMamba2, FeedForward: model.FeedForwardNone,
						State: &model.State{Conv: 4, KeyHeads: 8, ValueHeads: 64, KeyDim: 128, ValueDim: 64},
					},
					{Count: 23, Mixer: model.MixerNone, FeedForward: model.FeedForwardExperts},
					{Count: 6, Mixer: model.MixerFull, FeedForward: model.FeedForwardNone},
				},
			},
		}},
		{"qwen3-next-80b", hfconfig.Facts{
			Architecture: "Qwen3NextForCausalLM", Type: "qwen3_next", Context: 262144, Quantization: "bf16",
			Shape: model.Shape{
				Layers: 48, Hidden: 2048, Heads: 16, KVHeads: 2, HeadDim: 256, Vocab: 151936, QKNorm: true, GatedAttention: true,
				MoE: &model.MoE{Experts: 512, TopK: 10, Intermediate: 512, SharedIntermediate: 512, SharedGate: true},
				Pattern: []model.LayerGroup{
					{Count: 36, Mixer: model.MixerDeltaNet, State: delta}, {Count: 12, Mixer: model.MixerFull},
				},
			},
		}},
		{"deepseek-v3", hfconfig.Facts{
			Architecture: "DeepseekV3ForCausalLM", Type: "deepseek_v3", Context: 163840, Quantization: "fp8",
			Shape: model.Shape{
				Layers: 61, Hidden: 7168, Intermediate: 18432, Heads: 128, KVHeads: 128, HeadDim: 192, Vocab: 129280,
				MoE: &model.MoE{Experts: 256, TopK: 8, Intermediate: 2048, SharedIntermediate: 2048, DenseLayers: 3},
				MLA: &model.MLA{KVRank: 512, RopeDim: 64, QRank: 1536, NopeDim: 128, ValueDim: 128},
			},
		}},
		{"falcon-7b", hfconfig.Facts{
			Architecture: "FalconForCausalLM", Type: "falcon", Context: 2048, Quantization: "bf16",
			Shape: model.Shape{
				Layers: 32, Hidden: 4544, Intermediate: 18176, Heads: 71, KVHeads: 1, HeadDim: 64, Vocab: 65024,
				Tied: true, PlainMLP: true,
			},
		}},
	} {
		t.Run(tc.config, func(t *testing.T) {
			got, err := hfconfig.Parse(read(t, tc.config))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
		})
	}
}

// edited returns a config with some keys changed. A nil value removes the key.
func edited(t testing.TB, name string, changes map[string]any) []byte {
	t.Helper()
	var config map[string]any
	if err := json.Unmarshal(read(t, name), &config); err != nil {
		t.Fatal(err)
	}
	for path, value := range changes {
		at, key := config, path
		if outer, inner, ok := strings.Cut(path, "."); ok {
			at, key = config[outer].(map[string]any), inner //nolint:forcetypeassert,errcheck // of this test's own data
		}
		if value == nil {
			delete(at, key)
			continue
		}
		at[key] = value
	}
	out, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConfigKeys(t *testing.T) {
	type picked struct {
		KVHeads, HeadDim, Context, Window int
		Tied                              bool
	}
	null := json.RawMessage("null")
	list := func(kinds ...string) (out []string) {
		for range 7 {
			out = append(out, kinds...)
		}
		return out
	}
	for _, tc := range []struct {
		reason, config string
		changes        map[string]any
		want           picked
	}{
		{
			"no KV heads means as many as heads", "qwen2.5-7b",
			map[string]any{"num_key_value_heads": nil},
			picked{28, 128, 32768, 0, false},
		},
		{
			"another name of a key", "qwen2.5-7b",
			map[string]any{"num_key_value_heads": nil, "num_kv_heads": 7},
			picked{7, 128, 32768, 0, false},
		},
		{
			"null keeps the class's head dimension away", "gemma-3-4b",
			map[string]any{"text_config.head_dim": null},
			picked{4, 320, 131072, 1024, true},
		},
		{
			"the language model's own part wins", "gemma-3-4b",
			map[string]any{"num_key_value_heads": 1, "text_config.num_key_value_heads": 2},
			picked{2, 256, 131072, 1024, true},
		},
		{
			"the whole's keys stand in", "gemma-3-4b",
			map[string]any{"num_key_value_heads": 1, "tie_word_embeddings": false},
			picked{1, 256, 131072, 1024, false},
		},
		{
			"a window as long as the context is none", "gemma-3-4b",
			map[string]any{"text_config.sliding_window": 131072},
			picked{4, 256, 131072, 0, true},
		},
		{
			"a list of layers wins over a rhythm", "qwen2.5-7b",
			map[string]any{"layer_types": list("full_attention", "sliding_attention", "full_attention", "full_attention"), "sliding_window": 64},
			picked{4, 128, 32768, 64, false},
		},
		{
			"windows after the first layers", "qwen2.5-7b",
			map[string]any{"use_sliding_window": true, "max_window_layers": 20, "sliding_window": 1000},
			picked{4, 128, 32768, 1000, false},
		},
		{
			"linear scaling stretches", "qwen2.5-7b",
			map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2.5}},
			picked{4, 128, 81920, 0, false},
		},
		{
			"rope parameters of newer configs, by kind of layer", "qwen2.5-7b",
			map[string]any{"rope_parameters": map[string]any{"full_attention": map[string]any{
				"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16384,
			}}},
			picked{4, 128, 65536, 0, false},
		},
		{
			"the shortest of several lengths, and what a user may ask for", "qwen2.5-7b",
			map[string]any{"seq_length": 8192, "model_max_length": 10000},
			picked{4, 128, 10000, 0, false},
		},
		{
			"no length at all", "qwen2.5-7b", map[string]any{"max_position_embeddings": null}, picked{4, 128, 2048, 0, false},
		},
		{
			"the language model says itself that it is tied", "mistral-small-3.2-24b",
			map[string]any{"text_config.tie_word_embeddings": true},
			picked{8, 128, 131072, 0, true},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			facts, err := hfconfig.Parse(edited(t, tc.config, tc.changes))
			if err != nil {
				t.Fatal(err)
			}
			got := picked{facts.Shape.KVHeads, facts.Shape.HeadDim, facts.Context, 0, facts.Shape.Tied}
			for _, g := range facts.Shape.Pattern {
				got.Window = max(got.Window, g.Window)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLayersWithExperts(t *testing.T) {
	type kinds struct {
		Dense, Every int
		Pattern      []model.LayerGroup
	}
	freq := make([]int, 61)
	for i := range freq {
		freq[i] = min(1, i/2)
	}
	for _, tc := range []struct {
		reason, config string
		changes        map[string]any
		want           kinds
	}{
		{"all", "qwen3-30b-a3b", nil, kinds{}},
		{"each third", "qwen3-30b-a3b", map[string]any{"decoder_sparse_step": 3}, kinds{Every: 3}},
		{"all but the first two", "qwen3-30b-a3b", map[string]any{"mlp_only_layers": []int{1, 0}}, kinds{Dense: 2}},
		{"all but two in the middle", "qwen3-30b-a3b", map[string]any{"mlp_only_layers": []int{7, 11}}, kinds{Pattern: []model.LayerGroup{
			{Count: 46, Mixer: model.MixerFull, FeedForward: model.FeedForwardExperts},
			{Count: 2, Mixer: model.MixerFull, FeedForward: model.FeedForwardDense},
		}}},
		{"a list of 0 and 1", "deepseek-v3", map[string]any{"moe_layer_freq": freq}, kinds{Dense: 2}},
		{"each second after the first", "deepseek-v3", map[string]any{"moe_layer_freq": 2, "first_k_dense_replace": 1}, kinds{Pattern: []model.LayerGroup{
			{Count: 31, Mixer: model.MixerFull, FeedForward: model.FeedForwardDense},
			{Count: 30, Mixer: model.MixerFull, FeedForward: model.FeedForwardExperts},
		}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			facts, err := hfconfig.Parse(edited(t, tc.config, tc.changes))
			if err != nil {
				t.Fatal(err)
			}
			got := kinds{facts.Shape.MoE.DenseLayers, facts.Shape.MoE.Every, facts.Shape.Pattern}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
		})
	}
}

// NVIDIA's Nemotron Super is Llama 3.3 70B with fewer KV heads, narrower MLPs, and no attention in many layers.
func TestIrregularLayers(t *testing.T) {
	attention := func(group int) keys {
		return keys{"n_heads_in_group": group, "no_op": false, "replace_with_linear": false}
	}
	none := keys{"no_op": true}
	mlp := func(multiple float64) keys { return keys{"ffn_mult": multiple, "no_op": false} }
	block := func(attention, ffn keys) keys { return keys{"attention": attention, "ffn": ffn} }
	irregular := func(blocks ...keys) []byte {
		return edited(t, "llama-3.3-70b", keys{
			"model_type": "nemotron-nas", "architectures": []string{"DeciLMForCausalLM"}, "num_hidden_layers": len(blocks),
			"num_key_value_heads": nil, "intermediate_size": nil, "block_configs": blocks,
		})
	}
	facts, err := hfconfig.Parse(irregular(
		block(attention(8), mlp(5.25)), block(none, mlp(2.625)), block(attention(16), none), block(attention(8), mlp(5.25)),
	))
	if err != nil {
		t.Fatal(err)
	}
	want := []model.LayerGroup{
		{Count: 2, Mixer: model.MixerFull, FeedForward: model.FeedForwardDense, KVHeads: 8, Intermediate: 28672},
		{Count: 1, Mixer: model.MixerNone, FeedForward: model.FeedForwardDense, Intermediate: 14336},
		{Count: 1, Mixer: model.MixerFull, FeedForward: model.FeedForwardNone, KVHeads: 4},
	}
	if diff := cmp.Diff(want, facts.Shape.Pattern); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
	if facts.Shape.KVHeads != 4 || facts.Shape.Intermediate != 28672 {
		t.Errorf("%d KV heads and a width of %d, want the fewest and the widest", facts.Shape.KVHeads, facts.Shape.Intermediate)
	}
	// The keys and values of 2 x 8 and 4 heads of 128 elements in 16 bits.
	if got := facts.Shape.KVBytes(2); got != 20*2*128*2 {
		t.Errorf("%.0f bytes of KV cache for a token, want %d", got, 20*2*128*2)
	}
	for reason, blocks := range map[string][]keys{
		"a matrix in place of attention": {block(keys{"replace_with_linear": true}, mlp(1))},
		"neither attention nor an MLP":   {block(none, none)},
		"heads that do not come out":     {block(attention(7), mlp(1))},
		"an MLP without a width":         {block(attention(8), keys{})},
	} {
		if _, err := hfconfig.Parse(irregular(blocks...)); err == nil {
			t.Errorf("%s is taken for a layer", reason)
		}
	}
}

// An encoder determines the size of the media in the engine's profile run.
func TestVision(t *testing.T) {
	for _, tc := range []struct {
		config string
		want   model.Vision
	}{
		{"gemma-3-4b", model.Vision{Hidden: 1152, Intermediate: 4304, Patches: 4096, Tokens: 256}},
		{"mistral-small-3.2-24b", model.Vision{Hidden: 1024, Intermediate: 4096, Gated: true, Patches: 12100, Tokens: 3025, PatchPixels: 14}},
		{"qwen2.5-vl-7b", model.Vision{
			Hidden: 1280, Intermediate: 3420, Gated: true, Patches: 65536, Tokens: 16384, PatchPixels: 14, VideoTokens: 16384, VideoPairs: 7,
		}},
		{"qwen3-vl-8b", model.Vision{
			Hidden: 1152, Intermediate: 4304, Patches: 65536, Tokens: 16384, PatchPixels: 16, VideoTokens: 12288, VideoPairs: 1, Taps: 3,
		}},
	} {
		t.Run(tc.config, func(t *testing.T) {
			got, err := hfconfig.Parse(read(t, tc.config))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, got.Shape.Vision); diff != "" {
				t.Errorf("vision (-want +got):\n%s", diff)
			}
		})
	}
}
