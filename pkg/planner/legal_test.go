// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/planner"
)

func TestCannotRun(t *testing.T) {
	c := realCatalog(t)
	e, _ := c.Engine("vllm")
	for _, tc := range []struct{ reason, model, kvType, gpu, want string }{
		{"the engine's own need", "qwen3-8b", "", "V100-32", "bf16 needs compute capability 8.0, but V100-32 has 7.0"},
		{"a GPU of another maker", "qwen3-8b", "", "MI300X", "bf16 needs an NVIDIA GPU of compute capability 8.0 or higher, but MI300X is from another maker"},
		{
			"no kernels of sparse attention", "deepseek-v3.2", "", "A100-80",
			"sparse attention needs compute capability 9.0, 10.0, 10.3 or 12.0, but A100-80 has 8.0",
		},
		{"kernels", "deepseek-v3.2", "", "H100-80", ""},
		{"kernels for a later generation", "glm-5", "", "B300", ""},
		{
			"kernels that read 8 bits alone", "deepseek-v3.2", "", "RTX-PRO-6000",
			"sparse attention on RTX-PRO-6000 (compute capability 12.0) needs a KV cache in fp8: " +
				"allow it with inference.engine.allowedKVCacheTypes",
		},
		{"8 bits for them", "deepseek-v3.2", "fp8", "RTX-PRO-6000", ""},
		{"latent attention that is not sparse runs anywhere", "deepseek-v3-0324", "", "A100-80", ""},
		{"8 bits on a GPU that has none of them", "qwen3-8b", "fp8", "A100-80", ""},
		{"nor any kernels", "qwen2.5-7b-instruct", "fp8", "T4", "bf16 needs compute capability 8.0, but T4 has 7.5"},
		{"heads of 96", "phi-3.5-mini-instruct", "fp8", "A100-80", "a KV cache in fp8 needs compute capability 8.9, but A100-80 has 8.0"},
		{"sinks", "gpt-oss-20b", "fp8", "A10", "a KV cache in fp8 needs compute capability 8.9, but A10 has 8.6"},
		{"sinks where Triton reads 8 bits", "gpt-oss-20b", "fp8", "L4", ""},
		{"latent vectors", "deepseek-v3-0324", "fp8", "A100-80", "a KV cache in fp8 needs compute capability 8.9, but A100-80 has 8.0"},
		{"4 bits too early", "qwen3-8b", "nvfp4", "H100-80", "a KV cache in nvfp4 needs compute capability 10.0, but H100-80 has 9.0"},
		{"4 bits", "qwen3-8b", "nvfp4", "B200", ""},
		{
			"4 bits on another branch of the generation", "qwen3-8b", "nvfp4", "RTX-PRO-6000",
			"a KV cache in nvfp4 needs compute capability below 11.0, but RTX-PRO-6000 has 12.0",
		},
		{"a format of vectors that there are none of", "qwen3-8b", "fp8_ds_mla", "H100-80", "a KV cache in fp8_ds_mla is for sparse attention, which the model does not have"},
		{
			"a format of heads that there are none of", "deepseek-v3-0324", "fp8_e5m2", "H100-80",
			"a KV cache in fp8_e5m2 is for keys and values of heads, but the model caches latent vectors",
		},
	} {
		m, err := c.ResolveModel(tc.model)
		if err != nil {
			t.Fatal(err)
		}
		gpu, ok := c.GPU(tc.gpu)
		if !ok {
			t.Fatalf("there is no %s", tc.gpu)
		}
		got := planner.CannotRun(&e, &m.Shape, m.Artifacts[0].Quantization, tc.kvType, &gpu)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// A type of KV cache that the engine or the model does not support is ignored with a warning.
func TestUnknownKVCacheTypes(t *testing.T) {
	c := realCatalog(t)
	p := planner.New(c, planner.Settings{Clouds: []string{"azure"}, Engines: []string{"vllm"}})
	const known = "is ignored: for engine vllm, plans support a KV cache in bfloat16, float16, fp8, fp8_e4m3, fp8_e5m2, " +
		"fp8_per_token_head, int8_per_token_head, fp8_ds_mla, nvfp4"
	for _, tc := range []struct {
		reason, model, set, want string
		allowed                  []string
	}{
		{reason: "allowed", model: "qwen3-8b", allowed: []string{"int8"}, want: "inference.engine.allowedKVCacheTypes: int8 " + known},
		{reason: "set", model: "qwen3-8b", set: "turboquant_k8v4", want: "kv-cache-dtype: turboquant_k8v4 " + known},
		{
			reason: "of other attention", model: "qwen3-8b", allowed: []string{"fp8_ds_mla"},
			want: "inference.engine.allowedKVCacheTypes: fp8_ds_mla is ignored: it is for sparse attention, which the model does not have",
		},
		{reason: "the engine's choice", model: "qwen3-8b", set: "auto", allowed: []string{"auto"}},
		{reason: "known", model: "qwen3-8b", allowed: []string{"fp8"}},
	} {
		m, err := c.ResolveModel(tc.model)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{
			AllowedKVCacheTypes: tc.allowed, Engine: planner.EngineSettings{KVCacheType: tc.set},
		}})
		if err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		about := slices.DeleteFunc(slices.Clone(plan.Warnings), func(w string) bool { return !strings.Contains(w, "is ignored") })
		if got := strings.Join(about, "\n"); got != tc.want || tc.want != "" && plan.KVCacheType != "" {
			t.Errorf("%s: KV cache in %q, warnings %q, want %q", tc.reason, plan.KVCacheType, got, tc.want)
		}
	}
}

// Advice suggests a smaller KV cache if it saves money, and only on GPUs that support it.
func TestKVCacheAdviceFitsGPU(t *testing.T) {
	c := realCatalog(t)
	m, err := c.ResolveModel("qwen3-14b")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, cloud, gpu string
		want               bool
	}{
		{"T4 has no kernels for 8 bits", "azure", "T4", false},
		{"L4 has", "aws", "L4", true},
	} {
		p := planner.New(c, planner.Settings{Clouds: []string{tc.cloud}, Engines: []string{"vllm"}})
		r := planner.Request{Model: &m, Constraints: planner.Constraints{Accelerators: []string{tc.gpu}, AllowedQuantizations: []string{"awq"}}}
		advised := false
		for _, length := range []int{4096, 8192, 16384, 32768} {
			r.Objectives.MaxModelLen, r.Objectives.Concurrency = length, 4
			plan, err := p.Plan(r)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			advised = advised || slices.ContainsFunc(plan.Advice, func(text string) bool { return strings.HasPrefix(text, "with a KV cache in fp8") })
		}
		if advised != tc.want {
			t.Errorf("%s: a KV cache in fp8 is advised: %v", tc.reason, advised)
		}
	}
}

// A class without its size means all sizes.
func TestAcceleratorsWithoutSize(t *testing.T) {
	c := realCatalog(t)
	p := planner.New(c, planner.Settings{Clouds: []string{"azure"}, Engines: []string{"vllm"}})
	m, err := c.ResolveModel("qwen3-8b")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{Accelerators: []string{"H100"}}})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Accelerator != "H100-94" {
		t.Errorf("planned on %s, want the cheapest H100 of Azure, which has 94 GB", plan.Accelerator)
	}
	if len(plan.Warnings) > 0 {
		t.Errorf("warned of %q", plan.Warnings)
	}
}
