// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/presets"
)

func decode(t *testing.T, got ran, into any) {
	t.Helper()
	if got.Code != 0 {
		t.Fatalf("ended with %d: %s", got.Code, got.Err)
	}
	decoder := json.NewDecoder(strings.NewReader(got.Out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// TestNamesOfGPUs accepts the usual names of GPUs.
func TestNamesOfGPUs(t *testing.T) {
	for _, name := range []string{
		"H100-80-SXM", "H100-94-NVL", "A100-80-SXM", "A100-80-PCIe", "A100-40-SXM", "H200-141-SXM", "B200-180-SXM", "GB200", "L40S",
		"L4-24", "A10-24", "A10G-24", "T4-16", "V100-32", "RTX4090-24", "RTX PRO 6000-96", "MI300X-192", "h100-80-sxm", "rtx pro  6000-96",
		"H100", "A100", "RTX 4090", "RTX PRO 5000-72", "H200-141-NVL", "H20-96", "L40",
	} {
		got := shipped(t, "estimate", "--model", "microsoft/phi-4", "--gpu", name, "-o", "json")
		if got.Code != 0 {
			t.Errorf("%s: %s", name, got.Err)
		}
	}
}

// TestEstimateRefuses checks the reasons, other than memory, why an engine would not start.
func TestEstimateRefuses(t *testing.T) {
	for _, tc := range []struct {
		reason, note string
		args         []string
	}{
		{
			"bf16 on a GPU without it", "vllm refuses to start: bf16 needs compute capability 8.0, but V100-32 has 7.0",
			[]string{"--model", "Qwen/Qwen3-8B", "--gpu", "V100-32"},
		},
		{
			"heads that eight GPUs cannot share", "vllm refuses to start: 10 KV heads cannot be split 8 ways",
			[]string{"--model", "microsoft/phi-4", "--gpu", "H100-80-SXM", "--tp", "8"},
		},
		{
			"kernels that there are not", "vllm refuses to start: sparse attention needs compute capability 9.0, 10.0, 10.3 or 12.0, but A100-80 has 8.0",
			[]string{"--model", "deepseek-ai/DeepSeek-V3.2", "--gpu", "A100", "--tp", "16", "--nodes", "2"},
		},
		{
			"a KV cache that kernels cannot read", "vllm refuses to start: a KV cache in fp8 needs compute capability 8.0, but T4 has 7.5",
			[]string{"--model", "Qwen/Qwen3-0.6B", "--dtype", "fp16", "--gpu", "T4", "--kv-dtype", "fp8"},
		},
		{
			"experts that are smaller than their blocks",
			"vllm refuses to start: experts of width 768 cannot be split 4 ways in fp8's blocks of 128; --ep keeps each expert whole",
			[]string{"--model", "Qwen/Qwen3-30B-A3B", "--dtype", "fp8", "--gpu", "H100", "--tp", "4"},
		},
		{
			"experts that stay whole", "",
			[]string{"--model", "Qwen/Qwen3-30B-A3B", "--dtype", "fp8", "--gpu", "H100", "--tp", "4", "--ep"},
		},
		{
			"replicas of a mixture share its experts", "",
			[]string{"--model", "Qwen/Qwen3-235B-A22B", "--gpu", "H100", "--tp", "4", "--dp", "2", "--max-num-seqs", "64"},
		},
		{
			"nothing is wrong, and the weights bring the KV cache that is needed", "",
			[]string{"--model", "deepseek-ai/DeepSeek-V4-Flash", "--gpu", "RTX PRO 6000-96", "--tp", "4", "--max-model-len", "65536"},
		},
	} {
		var got struct {
			Fits  bool
			Notes []string
		}
		out := shipped(t, append([]string{"estimate", "-o", "json"}, tc.args...)...)
		if err := json.Unmarshal([]byte(out.Out), &got); err != nil {
			t.Fatalf("%s: %v: %s", tc.reason, err, out.Err)
		}
		if tc.note == "" && !got.Fits || tc.note != "" && (got.Fits || !slices.Contains(got.Notes, tc.note)) {
			t.Errorf("%s: fits is %v, notes are %q; want %q", tc.reason, got.Fits, got.Notes, tc.note)
		}
	}
}

// TestEstimateFields pins the names of fields for scripts.
func TestEstimateFields(t *testing.T) {
	var got map[string]any
	decode(t, shipped(t, "estimate", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "H100-80-SXM", "-o", "json"), &got)
	for _, field := range []string{
		"weightsGiBPerGPU", "kvCacheGiBPerGPU", "kvCacheTokens", "maxConcurrency", "activationGiB", "nonTorchGiB", "ttftMs", "tpotMs",
		"outputTokensPerSecond",
	} {
		if number, ok := got[field].(float64); !ok || number <= 0 {
			t.Errorf("%s is %v, want a number above 0", field, got[field])
		}
	}
	if _, ok := got["cudaGraphGiB"].(float64); !ok {
		t.Errorf("cudaGraphGiB is %v, want a number", got["cudaGraphGiB"])
	}
	if got["fits"] != true {
		t.Errorf("fits is %v, want true", got["fits"])
	}
}

// TestPlanFields decodes the plan into the type of a Workspace's status.
func TestPlanFields(t *testing.T) {
	var got v1beta1.PlanStatus
	decode(t, shipped(t, "plan", "--model", "meta-llama/Llama-3.3-70B-Instruct", "--cloud", "azure", "-o", "json"), &got)
	if got.InstanceType == "" || got.Nodes < 1 || got.HourlyPrice == "" || got.Memory == nil || len(got.Alternatives) == 0 {
		t.Errorf("the plan lacks something: %+v", got)
	}
}

// TestEveryModel plans for every model of the catalogue, and finds a heading for every reason.
func TestEveryModel(t *testing.T) {
	var models []struct {
		Name string `json:"name"`
	}
	got := shipped(t, "models", "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &models); err != nil || len(models) < 60 {
		t.Fatalf("%d models: %v %s", len(models), err, got.Err)
	}
	var manifest strings.Builder
	for i, m := range models {
		fmt.Fprintf(&manifest, "---\napiVersion: kaito.sh/v1beta1\nkind: Workspace\nmetadata: {name: model-%d-x}\ninference: {preset: {name: %s}}\n", i, m.Name)
	}
	plans := process{presets: presets.FS(), stdin: manifest.String()}.run(t, "plan", "-f", "-", "--explain")
	if plans.Code != 0 && plans.Code != 3 || strings.Count(plans.Err, "\n") > 1 {
		t.Fatalf("ended with %d: %s", plans.Code, plans.Err)
	}
	for i, m := range models {
		name := fmt.Sprintf("model-%d-x", i)
		planned, refused := strings.Contains(plans.Out, name+" ("), strings.Contains(plans.Err, "Workspace "+name+": ")
		if planned == refused {
			t.Errorf("%s is planned: %v, refused: %v", m.Name, planned, refused)
		}
	}
	if _, unknown, found := strings.Cut(plans.Out, "Other reasons"); found {
		t.Errorf("no theme for these:%.300s", unknown)
	}
}

// TestExamples plans for every example. Bad examples with a visible fault are refused.
func TestExamples(t *testing.T) {
	good, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(good) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range good {
		if got := shipped(t, "plan", "-f", file, "--catalog", "../../examples/local-catalog"); got.Code != 0 {
			t.Errorf("%s: %s", file, got.Err)
		}
	}
	for name, code := range map[string]int{
		"both-inference-and-tuning": 2, "bring-your-own": 3, "does-not-fit": 3, "name-too-long": 2, "neither-inference-nor-tuning": 2,
		"no-machine-allowed": 3, "template-without-containers": 2, "tuning": 3, "unknown-instance-type": 2, "unknown-preset": 2,
		"unusable-instance-type": 3,
	} {
		got := shipped(t, "plan", "-f", "../../examples/bad/"+name+".yaml", "--catalog", "../../examples/local-catalog")
		if got.Code != code || strings.Count(got.Err, "\n") != 1 {
			t.Errorf("%s: ended with %d and %q, want %d and one line", name, got.Code, got.Err, code)
		}
	}
}

// TestShippedTables checks that the tables have a row for every entry, and no empty cells.
func TestShippedTables(t *testing.T) {
	for _, args := range [][]string{{"skus", "-o", "wide", "--usable"}, {"gpus"}, {"models", "-o", "wide"}} {
		got := shipped(t, args...)
		lines := strings.Split(strings.TrimSpace(got.Out), "\n")
		if got.Code != 0 || len(lines) < 20 {
			t.Errorf("%v: ended with %d and %d lines", args, got.Code, len(lines))
			continue
		}
		columns := regexp.MustCompile(` {2,}`)
		want := len(columns.Split(lines[0], -1))
		for _, line := range lines[1:] {
			if cells := len(columns.Split(line, -1)); cells != want {
				t.Errorf("%v: %d cells in %q, want %d", args, cells, line, want)
			}
		}
	}
}
