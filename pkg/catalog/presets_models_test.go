// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"encoding/csv"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
)

// vllm is the engine of every preset.
const vllm = "vllm"

// preset returns an existing model.
func preset(t *testing.T, c *catalog.Catalog, name string) model.Model {
	t.Helper()
	m, err := c.ResolveModel(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// billions formats a number of parameters as model cards do, with as many digits as a printed number.
func billions(params int64, printed string) string {
	_, fraction, _ := strings.Cut(printed, ".")
	return strconv.FormatFloat(float64(params)/1e9, 'f', len(fraction), 64)
}

// Parameter counts of language models equal the published ones, to the last printed digit. Vision towers do not count.
// Layers for speculative decoding are not loaded and never count.
func TestPresetsHavePublishedParameterCounts(t *testing.T) {
	c := loadPresets(t)
	published := []struct{ reason, name, total, active string }{
		{"tied", "llama-3.2-1b-instruct", "1.236", ""},
		{"tied", "llama-3.2-3b-instruct", "3.213", ""},
		{"untied", "meta-llama-3-8b-instruct", "8.030261248", ""},
		{"untied", "llama-3.1-8b-instruct", "8.030261248", ""},
		{"untied", "llama-3.1-70b-instruct", "70.553706496", ""},
		{"untied", "llama-3.3-70b-instruct", "70.553706496", ""},
		{"untied", "llama-3.1-405b-instruct", "405.85", ""},
		{"one expert of sixteen and a shared one", "llama-4-scout-17b-16e-instruct", "107.8", "17.2"},
		{"experts in every second layer", "llama-4-maverick-17b-128e-instruct", "400.7", "17.2"},
		{"untied", "mistral-7b-instruct-v0.3", "7.248", ""},
		{"heads narrower than hidden/heads", "mistral-nemo-instruct-2407", "12.248", ""},
		{"beside a vision encoder", "mistral-small-3.2-24b-instruct-2506", "23.57", ""},
		{"windows add nothing", "ministral-8b-instruct-2410", "8.020", ""},
		{"latent attention and experts", "mistral-large-3-675b-instruct-2512", "673", ""},
		{"two of eight experts", "mixtral-8x7b-instruct-v0.1", "46.70", "12.9"},
		{"two of eight experts", "mixtral-8x22b-instruct-v0.1", "140.6", "39.2"},
		{"tied, with biases", "qwen2.5-0.5b-instruct", "0.494032768", ""},
		{"tied, with biases", "qwen2.5-1.5b-instruct", "1.543714304", ""},
		{"tied, with biases", "qwen2.5-3b-instruct", "3.085938688", ""},
		{"biases of queries, keys and values", "qwen2.5-7b-instruct", "7.615616512", ""},
		{"biases of queries, keys and values", "qwen2.5-14b-instruct", "14.770", ""},
		{"biases of queries, keys and values", "qwen2.5-32b-instruct", "32.764", ""},
		{"biases of queries, keys and values", "qwen2.5-72b-instruct", "72.706", ""},
		{"tied, normalised heads", "qwen3-0.6b", "0.596", ""},
		{"tied, normalised heads", "qwen3-1.7b", "1.721", ""},
		{"tied, normalised heads", "qwen3-4b", "4.022468096", ""},
		{"normalised heads", "qwen3-8b", "8.190735360", ""},
		{"normalised heads", "qwen3-14b", "14.768", ""},
		{"normalised heads", "qwen3-32b", "32.762123264", ""},
		{"8 of 128 experts", "qwen3-30b-a3b", "30.532122624", "3.35"},
		{"8 of 128 experts", "qwen3-235b-a22b", "235.093634560", "22.2"},
		{"8 of 160 experts", "qwen3-coder-480b-a35b-instruct", "480.154875392", "35.5"},
		{"delta nets and a gated shared expert", "qwen3-next-80b-a3b-instruct", "79.674391296", "3.874929408"},
		{"delta nets", "qwen3.5-9b", "8.953803264", ""},
		{"delta nets", "qwen3.6-27b", "26.895998464", ""},
		{"four norms", "gemma-2-9b-it", "9.242", ""},
		{"four norms", "gemma-2-27b-it", "27.227", ""},
		{"all but one scalar of each of 48 layers", "gemma-4-12b-it", "11.907350272", ""},
		{"ten KV heads", "phi-4", "14.660", ""},
		{"tied", "phi-4-mini-instruct", "3.836021760", ""},
		{"as many KV heads as heads", "phi-3.5-mini-instruct", "3.821", ""},
		{"latent attention, dense layers, biases of routers", "deepseek-v3-0324", "671.026419200", "37.6"},
		{"with an indexer in each layer", "deepseek-v3.2", "671.9", "38.4"},
		{"without compressors and hyper-connections", "deepseek-v4-flash", "284", "13"},
		{"biases everywhere, sinks", "gpt-oss-20b", "20.914757184", "4.19"},
		{"biases everywhere, sinks", "gpt-oss-120b", "116.829156672", "5.71"},
		{"first layer dense", "glm-4.5-air", "106.9", "13.4"},
		{"first three layers dense", "glm-4.5", "352.8", "33.6"},
		{"four norms, two KV heads", "glm-4-9b-0414", "9.400", ""},
		{"four norms, two KV heads", "glm-4-32b-0414", "32.566", ""},
		{"an indexer in 21 of 78 layers", "glm-5.2", "743", ""},
		{"latent attention, 384 experts", "kimi-k2-instruct", "1026.4", "32.9"},
		{"normalised over all heads, biases of routers", "minimax-m2", "228.689764864", "11.0"},
		{"Mamba 2, experts of two matrices, biases of routers", "nvidia-nemotron-3-nano-30b-a3b-bf16", "31.577940288", "3.580076352"},
		{"experts behind a latent projection", "nvidia-nemotron-3-super-120b-a12b-bf16", "120.668707840", "12.77"},
		{"experts behind a latent projection", "nvidia-nemotron-3-ultra-550b-a55b-bf16", "549", "56"},
		{"three query heads for each KV head", "falcon3-7b-instruct", "7.456", ""},
		{"three query heads for each KV head", "falcon3-10b-instruct", "10.306", ""},
		{"tied", "granite-3.3-8b-instruct", "8.171", ""},
		{"normalised over all heads", "olmo-2-1124-7b-instruct", "7.299", ""},
		{"normalised over all heads", "olmo-2-1124-13b-instruct", "13.716", ""},
		{"normalised over all heads", "olmo-2-0325-32b-instruct", "32.234", ""},
		{"one norm per layer", "c4ai-command-r-08-2024", "32.30", ""},
		{"one norm per layer, normalised over all heads", "c4ai-command-r-plus-08-2024", "103.810674688", ""},
		{"one norm per layer, windows", "c4ai-command-a-03-2025", "111.06", ""},
		{"one norm per layer, windows", "c4ai-command-r7b-12-2024", "8.03", ""},
		{"tied", "smollm2-1.7b-instruct", "1.711", ""},
	}
	same := 0
	for _, tc := range published {
		t.Run(tc.name, func(t *testing.T) {
			s := preset(t, c, tc.name).Shape
			if got := billions(s.Params()-s.ExtraParams, tc.total); got != tc.total {
				t.Errorf("%s: %s billion parameters, published %s", tc.reason, got, tc.total)
			} else {
				same++
			}
			if got := billions(s.ActiveParams()-s.ExtraParams, tc.active); tc.active != "" && got != tc.active {
				t.Errorf("%s: %s billion active parameters, published %s", tc.reason, got, tc.active)
			}
		})
	}
	t.Logf("figure: parameter counts equal to the last printed digit: %d of %d models", same, len(published))
}

// Including the parts that are loaded besides the language model, counts equal the hub's totals.
func TestPresetsHaveTheHubsTotals(t *testing.T) {
	c := loadPresets(t)
	for _, tc := range []struct {
		name  string
		total int64
	}{
		{"llama-4-scout-17b-16e-instruct", 108_641_793_536},
		{"llama-4-maverick-17b-128e-instruct", 401_583_781_376},
		{"mistral-small-3.2-24b-instruct-2506", 24_011_361_280},
		{"mistral-small-4-119b-2603", 119_401_317_952},
		{"gemma-3-4b-it", 4_300_079_472},
		{"gemma-3-27b-it", 27_432_406_640},
		{"gemma-4-e2b-it", 5_123_178_051},
		{"gemma-4-e4b-it", 7_996_156_490},
		{"gemma-4-12b-it", 11_959_730_224},
		{"gemma-4-26b-a4b-it", 25_805_936_206},
		{"gemma-4-31b-it", 31_273_088_876},
		{"qwen3.5-2b", 2_274_069_824 - 60_828_160},    // less the layer for speculative decoding
		{"qwen3.6-27b", 27_781_427_952 - 424_699_392}, // less the layer for speculative decoding
	} {
		if got := preset(t, c, tc.name).Shape.Params(); got != tc.total {
			t.Errorf("%s: %d parameters, the hub has %d", tc.name, got, tc.total)
		}
	}
}

// The KV cache of a token in 16 bits equals the figure in start-up logs, on one rank.
func TestPresetsKVCache(t *testing.T) {
	c := loadPresets(t)
	for _, tc := range []struct {
		reason, name string
		tp           int
		bytes        float64
	}{
		{"grouped queries", "llama-3.1-8b-instruct", 1, 131_072},
		{"grouped queries", "mistral-7b-instruct-v0.3", 1, 131_072},
		{"grouped queries", "llama-3.3-70b-instruct", 1, 327_680},
		{"half the heads", "llama-3.3-70b-instruct", 2, 163_840},
		{"grouped queries", "llama-3.1-405b-instruct", 1, 516_096},
		{"grouped queries", "qwen2.5-7b-instruct", 1, 57_344},
		{"grouped queries", "qwen2.5-14b-instruct", 1, 196_608},
		{"grouped queries", "qwen2.5-coder-32b-instruct", 1, 262_144},
		{"grouped queries", "qwen3-8b", 1, 147_456},
		{"a quarter of the heads", "qwen3-8b", 4, 36_864},
		{"grouped queries", "qwen3-14b", 1, 163_840},
		{"grouped queries", "qwen3-32b", 1, 262_144},
		{"grouped queries", "qwen3-30b-a3b", 1, 98_304},
		{"grouped queries", "qwen3-235b-a22b", 1, 192_512},
		{"one head of four on each rank", "qwen3-235b-a22b", 4, 48_128},
		{"no rank has less than one head", "qwen3-235b-a22b", 8, 48_128},
		{"ten heads", "phi-4", 1, 204_800},
		{"grouped queries", "mistral-small-3.2-24b-instruct-2506", 1, 163_840},
		{"grouped queries", "glm-4.5", 1, 376_832},
		{"grouped queries", "glm-4.5-air", 1, 188_416},
		{"latent attention", "deepseek-v3-0324", 1, 70_272},
		{"every rank keeps the latent vector", "deepseek-v3-0324", 8, 70_272},
		{"layers with a window do not count", "gpt-oss-120b", 1, 36_864},
		{"layers with a window do not count", "gpt-oss-20b", 1, 24_576},
		{"states do not count", "qwen3.6-27b", 1, 65_536},
		{"heads of layers that keep all tokens are their own", "gemma-4-31b-it", 1, 81_920},
		{"layers that reuse a cache keep none", "gemma-4-e4b-it", 1, 16_384},
	} {
		if got := preset(t, c, tc.name).Shape.KVBytesOnRank(tc.tp, 2); got != tc.bytes {
			t.Errorf("%s on %d ranks (%s): %.0f bytes per token, logs show %.0f", tc.name, tc.tp, tc.reason, got, tc.bytes)
		}
	}
	sparse := preset(t, c, "deepseek-v3.2").Shape
	if got, want := sparse.KVBytes(1), float64(61*(656+132)); got != want {
		t.Errorf("deepseek-v3.2 at 8 bits: %.0f bytes per token, want 656 of each layer and 132 of its indexer: %.0f", got, want)
	}
}

// Every layer of every preset is of one kind.
func TestPresetsLayerKindsAreComplete(t *testing.T) {
	for _, m := range loadPresets(t).Models() {
		sum := 0
		for _, kind := range m.Shape.LayerKinds() {
			sum += kind.Count
			if kind.Params() <= 0 {
				t.Errorf("%s: a kind of %d layers has %d parameters", m.Name, kind.Count, kind.Params())
			}
		}
		if sum != m.Shape.Layers {
			t.Errorf("%s: kinds have %d layers, the model %d", m.Name, sum, m.Shape.Layers)
		}
	}
}

// kaitoPreset is a row of KAITO's table.
type kaitoPreset map[string]string

func (p kaitoPreset) number(t *testing.T, column string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(p[column], 64)
	if err != nil {
		t.Fatalf("%s: %s: %v", p["hub_id"], column, err)
	}
	return n
}

func kaitoPresets(t *testing.T) []kaitoPreset {
	t.Helper()
	f, err := os.Open("testdata/kaito-presets.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	reader := csv.NewReader(f)
	reader.Comment = '#'
	rows, err := reader.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []kaitoPreset
	for _, row := range rows[1:] {
		preset := kaitoPreset{}
		for i, column := range rows[0] {
			preset[column] = row[i]
		}
		out = append(out, preset)
	}
	return out
}

// Every preset and alias of KAITO has the same model here as there.
func TestPresetsHaveKAITOsNames(t *testing.T) {
	c := loadPresets(t)
	presets, aliases := kaitoPresets(t), 0
	for _, p := range presets {
		hubID := p["hub_id"]
		names := []string{hubID, path.Base(hubID), strings.ToUpper(hubID)}
		if p["alias"] != "" {
			aliases++
			names = append(names, p["alias"])
		}
		for _, name := range names {
			m, ok := c.Model(name)
			if !ok || m.HubID != hubID {
				t.Errorf("Model(%q) = %q, %v, want %q", name, m.HubID, ok, hubID)
			}
		}
	}
	if len(presets) != 60 || aliases != 25 {
		t.Errorf("testdata has %d presets and %d aliases, want 60 and 25", len(presets), aliases)
	}
}

// Every preset of KAITO can be served as its publisher released it, with the same facts, except for KAITO's errors.
func TestPresetsAgreeWithKAITO(t *testing.T) {
	c := loadPresets(t)
	for _, p := range kaitoPresets(t) {
		t.Run(p["hub_id"], func(t *testing.T) {
			m := preset(t, c, p["hub_id"])
			i := slices.IndexFunc(m.Artifacts, func(a model.Artifact) bool {
				return a.Engine == vllm && a.Native && a.Repo == p["hub_id"]
			})
			if i < 0 {
				t.Fatalf("no native artifact for vLLM: %+v", m.Artifacts)
			}
			gib := float64(m.Artifacts[i].Bytes()) / (1 << 30)
			twice := strings.HasPrefix(p["hub_id"], "openai/") // KAITO counts a second copy in the repository
			if off := math.Abs(gib/p.number(t, "weights_gib") - 1); (off > 0.01) != twice {
				t.Errorf("%.2f GiB, KAITO has %s", gib, p["weights_gib"])
			}
			want := []float64{
				1024 * p.number(t, "context_k"), p.number(t, "layers"), p.number(t, "heads"), p.number(t, "kv_heads"),
			}
			got := []float64{
				float64(m.Context), float64(m.Shape.Layers), float64(m.Shape.Heads), float64(m.Shape.KVHeads),
			}
			if p["attention"] != "MLA" { // KAITO computes hidden/heads instead
				want, got = append(want, p.number(t, "head_dim")), append(got, float64(m.Shape.HeadDim))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("context, layers, heads, KV heads, head dimension (-KAITO +got):\n%s", diff)
			}
			parsers := []string{m.ReasoningParser, m.ToolParser}
			if diff := cmp.Diff([]string{p["reasoning_parser"], p["tool_parser"]}, parsers); diff != "" {
				t.Errorf("parsers (-KAITO +got):\n%s", diff)
			}
		})
	}
}

// An unregistered parser keeps the engine from starting.
func TestPresetsNameParsersOfVLLM(t *testing.T) {
	data, err := os.ReadFile("testdata/vllm-parsers.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		if kind, names, _ := strings.Cut(strings.TrimSpace(line), " "); kind != "#" {
			known[kind] = strings.Fields(names)
		}
	}
	used := 0
	for _, m := range loadPresets(t).Models() {
		for kind, parser := range map[string]string{"tool": m.ToolParser, "reasoning": m.ReasoningParser} {
			if parser == "" {
				continue
			}
			used++
			if !slices.Contains(known[kind], parser) {
				t.Errorf("%s: vLLM registers no %s parser %q", m.Name, kind, parser)
			}
		}
	}
	if used == 0 {
		t.Error("no preset has a parser")
	}
}

// onRank returns the loaded bytes of a model in a format on the fullest of tensorParallel ranks.
func onRank(s model.Shape, q model.Quantization, tensorParallel int) float64 {
	linear, expert := 2.0, 2.0
	switch q.Scope {
	case model.ScopeAll, model.ScopeLinears:
		linear, expert = q.BytesPerParam, q.BytesPerParam
	case model.ScopeExperts:
		expert = q.BytesPerParam * max(1, q.LoadedFactor)
	}
	split := float64(tensorParallel)
	embeddings := float64(s.EmbeddingParams())
	if !s.Tied {
		embeddings *= 2
	}
	bytes := 2 * (embeddings/split + float64(s.Hidden) + float64(s.ExtraParams)/split)
	for _, l := range s.LayerKinds() {
		heads := split
		if l.KVHeads > 0 {
			heads = min(heads, float64(l.KVHeads))
		}
		bytes += float64(l.Count) * (linear*(float64(l.Attention)/split+float64(l.KeyValue)/heads+float64(l.Dense)/split) +
			expert*float64(l.Experts)*float64(l.Expert)/split + 2*float64(l.Replicated))
	}
	return bytes
}

// Weights on a rank equal vLLM's start-up logs.
func TestPresetsWeightsAgreeWithLogs(t *testing.T) {
	const most = 0.01
	c := loadPresets(t)
	for _, tc := range []struct {
		source, repo string
		tp           int
		gib          float64
	}{
		{"llm-d-benchmark 87ab01be", "openai/gpt-oss-20b", 1, 13.47},
		{"llm-d-benchmark 87ab01be", "openai/gpt-oss-120b", 1, 64.38},
		{"llm-d-benchmark 87ab01be", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 1, 67.72},
		{"llm-d-benchmark 87ab01be", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 2, 33.88},
		{"llm-d-benchmark 87ab01be", "meta-llama/Llama-3.1-8B-Instruct", 1, 14.99},
		{"llm-d-benchmark 87ab01be", "Qwen/Qwen3-0.6B", 1, 1.12},
		{"llm-d-benchmark 87ab01be", "Qwen/Qwen3-32B", 1, 61.03},
		{"llm-d-benchmark 87ab01be", "Qwen/Qwen3-32B", 2, 30.59},
		{"llm-d-benchmark 87ab01be", "mistralai/Mistral-Small-3.2-24B-Instruct-2506", 1, 44.76},
		{"vllm pull request 10511", "meta-llama/Meta-Llama-3-8B-Instruct", 1, 14.96},
		{"a log of a T4", "Qwen/Qwen2.5-1.5B-Instruct", 1, 2.89},
		{"a log of four RTX 2080 Ti", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 4, 3.85},
		{"a log of four RTX 2080 Ti", "Qwen/Qwen3-30B-A3B", 4, 14.27},
		{"a log of eight L40S", "Qwen/Qwen3-235B-A22B-FP8", 8, 27.72},
	} {
		m := preset(t, c, tc.repo)
		i := slices.IndexFunc(m.Artifacts, func(a model.Artifact) bool { return a.Engine == vllm && a.Repo == tc.repo })
		if i < 0 {
			t.Errorf("%s has no artifact for vLLM", tc.repo)
			continue
		}
		a := m.Artifacts[i]
		q, _ := c.Quantization(a.Quantization)
		unpadded := q
		unpadded.LoadedFactor = 0
		// The artifact's size, spread as the format spreads it.
		bytes := onRank(m.Shape, q, tc.tp) * float64(a.LoadedBytes()) / onRank(m.Shape, unpadded, 1)
		if off := bytes/(1<<30)/tc.gib - 1; math.Abs(off) > most {
			t.Errorf("%s on %d ranks: %.2f GiB, %s shows %.2f: %.1f %% off", tc.repo, tc.tp, bytes/(1<<30), tc.source, tc.gib, 100*off)
		}
	}
	// Not compared: gemma-3-4b-it, because a log of vLLM 0.10 has 8.58 instead of 8.01 GiB without a reason;
	// gpt-oss-120b under vLLM 0.10.1, with another padding; Llama-3.1-405B-Instruct-FP8 and DeepSeek-V4-Flash, because
	// their sizes come from the logs.
}
