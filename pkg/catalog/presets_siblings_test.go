// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import "testing"

// People use earlier names of repositories, and names of models with equal plans.
func TestPresetsResolveOtherRepositories(t *testing.T) {
	c := loadPresets(t)
	for name, want := range map[string]struct{ repo, quantization string }{
		"deepseek-ai/DeepSeek-V3":                       {"deepseek-ai/DeepSeek-V3", "fp8"},
		"deepseek-ai/DeepSeek-R1":                       {"deepseek-ai/DeepSeek-R1", "fp8"},
		"meta-llama/Meta-Llama-3.1-8B-Instruct":         {"meta-llama/Meta-Llama-3.1-8B-Instruct", "bf16"},
		"meta-llama/meta-llama-3.1-70b-instruct":        {"meta-llama/Meta-Llama-3.1-70B-Instruct", "bf16"},
		"meta-llama/Meta-Llama-3.1-405B-Instruct-FP8":   {"meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", "fp8-channel"},
		"meta-llama/Meta-Llama-3-70B-Instruct":          {"meta-llama/Meta-Llama-3-70B-Instruct", "bf16"},
		"meta-llama/Llama-3.1-8B":                       {"meta-llama/Llama-3.1-8B", "bf16"},
		"neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8":    {"neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8", "fp8-channel"},
		"neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8":   {"neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8", "fp8-channel"},
		"nvidia/Llama-3.3-70B-Instruct-FP4":             {"nvidia/Llama-3.3-70B-Instruct-FP4", "nvfp4"},
		"nvidia/Llama-3.3-70B-Instruct-FP8":             {"nvidia/Llama-3.3-70B-Instruct-FP8", "fp8-channel"},
		"nvidia/DeepSeek-R1-FP4":                        {"nvidia/DeepSeek-R1-FP4", "nvfp4"},
		"nvidia/DeepSeek-R1-0528-FP4":                   {"nvidia/DeepSeek-R1-0528-FP4", "nvfp4"},
		"nvidia/DeepSeek-V3-0324-NVFP4":                 {"nvidia/DeepSeek-V3-0324-NVFP4", "nvfp4"},
		"nvidia/Qwen3-235B-A22B-NVFP4":                  {"nvidia/Qwen3-235B-A22B-NVFP4", "nvfp4"},
		"Qwen/QwQ-32B":                                  {"Qwen/QwQ-32B", "bf16"},
		"Qwen/Qwen2.5-7B":                               {"Qwen/Qwen2.5-7B", "bf16"},
		"mistralai/Mistral-7B-Instruct-v0.2":            {"mistralai/Mistral-7B-Instruct-v0.2", "bf16"},
		"mistralai/Mistral-Small-24B-Instruct-2501":     {"mistralai/Mistral-Small-24B-Instruct-2501", "bf16"},
		"mistralai/Mistral-Small-3.1-24B-Instruct-2503": {"mistralai/Mistral-Small-3.1-24B-Instruct-2503", "bf16"},
		// The basename of two owners' repositories means the first repository in the catalogue.
		"llama-3.3-70b-instruct-fp8-dynamic": {"RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8-channel"},
	} {
		m, err := c.ResolveModel(name)
		if err != nil {
			t.Error(err)
			continue
		}
		a := m.Artifacts[0]
		if m.HubID != want.repo || a.Repo != want.repo || a.Quantization != want.quantization || !a.Native {
			t.Errorf("%s is %s in %s of %s, native %v; want %+v", name, m.HubID, a.Quantization, a.Repo, a.Native, want)
		}
	}
}

// An engine runs only reviewed code from models' repositories.
func TestPresetsPinRemoteCode(t *testing.T) {
	for _, m := range loadPresets(t).Models() {
		for _, a := range m.Artifacts {
			if m.RemoteCode && !a.IsPinned() {
				t.Errorf("%s: %s runs code at revision %q: name a commit", m.Name, a.Repo, a.Revision)
			}
		}
	}
}
