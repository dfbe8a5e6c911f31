// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package llamacpp_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/presets"
)

// loaded loads the catalogue once. That is safe, because nobody can change it.
var loaded = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.Load(presets.FS()) })

func preset(t *testing.T) catalog.Engine {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	data, found := all.Engine("llamacpp")
	if !found {
		t.Fatal("the presets have no engine llamacpp")
	}
	return data
}

func input(data catalog.Engine, gpus int) engine.Input {
	return engine.Input{
		Data: data,
		Plan: planner.Plan{
			GPUsPerNode: gpus, MaxModelLen: 4096, Concurrency: 4,
			Artifact: &model.Artifact{Files: []model.File{{Path: "q8/part-1.gguf"}, {Path: "q8/part-2.gguf"}}},
		},
		ModelDir:    "/models",
		ServedNames: []string{"some-model", "alias", "Org/Some-Model"},
		Port:        5000,
	}
}

func TestCommandCarriesThePlan(t *testing.T) {
	data := preset(t)
	for _, tc := range []struct {
		reason string
		gpus   int
		want   string
	}{
		{
			reason: "without GPUs no layer is offloaded, and no main memory is spent beyond the plan",
			gpus:   0,
			want: "--model /models/q8/part-1.gguf --alias some-model --host 0.0.0.0 --port 5000 --ctx-size 16384 --parallel 4" +
				" --n-gpu-layers 0 --fit off --cache-ram 0 --metrics --jinja",
		},
		{
			reason: "one GPU holds every layer",
			gpus:   1,
			want: "--model /models/q8/part-1.gguf --alias some-model --host 0.0.0.0 --port 5000 --ctx-size 16384 --parallel 4" +
				" --n-gpu-layers 999 --fit off --metrics --jinja",
		},
		{
			reason: "several GPUs share the layers",
			gpus:   4,
			want: "--model /models/q8/part-1.gguf --alias some-model --host 0.0.0.0 --port 5000 --ctx-size 16384 --parallel 4" +
				" --n-gpu-layers 999 --split-mode layer --fit off --metrics --jinja",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := llamacpp.Command(input(data, tc.gpus))
			if err != nil {
				t.Fatal(err)
			}
			want := engine.Command{Args: strings.Fields(tc.want), HealthPath: "/health", BusyMetrics: data.BusyMetrics}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Command: -want +got:\n%s", diff)
			}
		})
	}
}

func TestCommandTakesTheUsersFlags(t *testing.T) {
	data := preset(t)
	for _, tc := range []struct {
		reason   string
		config   engine.Config
		args     map[string]string
		want     string
		warnings []string
	}{
		{
			reason: "args win over the ConfigMap, which wins over the plan",
			config: engine.Config{"llamacpp": {"np": "2", "temp": "0.1", "flash-attn": "on"}},
			args:   map[string]string{"temperature": "0.2"},
			want:   "--ctx-size 16384 --parallel 2 --n-gpu-layers 999 --fit off --metrics --jinja --flash-attn on --temp 0.2",
		},
		{
			reason: "flags of ours can be switched off",
			args:   map[string]string{"metrics": "false", "jinja": "false", "no-webui": ""},
			want:   "--ctx-size 16384 --parallel 4 --n-gpu-layers 999 --fit off --no-jinja --no-ui",
		},
		{
			reason: "less context than planned is legal, and what it means is said",
			args:   map[string]string{"ctx-size": "8192"},
			want:   "--ctx-size 8192 --parallel 4 --n-gpu-layers 999 --fit off --metrics --jinja",
			warnings: []string{
				"flags ctx-size 8192 and parallel 4 leave 2048 of the planned 4096 tokens for each sequence: set inference.objectives.maxModelLen and .concurrency instead",
			},
		},
		{
			reason: "one pool of context leaves each sequence as much as it likes",
			args:   map[string]string{"parallel": "16", "kv-unified": "true"},
			want:   "--ctx-size 16384 --parallel 16 --n-gpu-layers 999 --fit off --metrics --jinja --kv-unified",
		},
		{
			reason: "more context than the plan has memory for is replaced",
			args:   map[string]string{"c": "16385"},
			want:   "--ctx-size 16384 --parallel 4 --n-gpu-layers 999 --fit off --metrics --jinja",
			warnings: []string{
				"flag ctx-size: 16384 is used instead of 16385, because the plan has no memory for more: to plan for more, set inference.objectives.maxModelLen and .concurrency",
			},
		},
		{
			reason: "the model's whole context is more than the plan has memory for",
			args:   map[string]string{"ctx-size": "0", "cache-type-k": "f32", "cache-type-v": "q8_0"},
			want:   "--ctx-size 16384 --parallel 4 --n-gpu-layers 999 --fit off --metrics --jinja --cache-type-v q8_0",
			warnings: []string{
				"flag cache-type-k: f32 is ignored, because it needs twice the planned memory",
				"flag ctx-size: 16384 is used instead of 0, because the plan has no memory for more: to plan for more, set inference.objectives.maxModelLen and .concurrency",
			},
		},
		{
			reason: "larger micro-batches than planned are replaced, smaller ones are not",
			args:   map[string]string{"ub": "2048", "batch-size": "4096"},
			want:   "--ctx-size 16384 --parallel 4 --n-gpu-layers 999 --fit off --metrics --jinja --batch-size 4096",
			warnings: []string{
				"flag ubatch-size: 512 is used instead of 2048, because the plan has no memory for more",
			},
		},
		{
			reason: "what Modelberth relies on stays, and vLLM's flags are not llama.cpp's",
			config: engine.Config{"": {"max_probe_steps": "6"}, "vllm": {"host": "::", "max-model-len": "4096"}},
			args:   map[string]string{"m": "/etc/passwd", "host": "127.0.0.1", "hf": "a/b", "ngram": "1"},
			want:   "--ctx-size 16384 --parallel 4 --n-gpu-layers 999 --fit off --metrics --jinja",
			warnings: []string{
				`inference_config.yaml: max_probe_steps is ignored, because engine llamacpp has no such setting`,
				`inference_config.yaml: section "vllm" (host and max-model-len) is ignored, because engine llamacpp serves the model: put flags of that engine into section "llamacpp"`,
				`inference.engine.args: ngram is ignored, because engine llamacpp 0.7.0 has no such flag`,
				`inference.engine.args: host is ignored, because the Service and the probes rely on its value`,
				`inference.engine.args: hf and m are ignored, because the weights are the files that Modelberth fetched and verified`,
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data, 1)
			in.Config, in.Args = tc.config, tc.args
			got, err := llamacpp.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			want := engine.Command{
				Args:       strings.Fields("--model /models/q8/part-1.gguf --alias some-model --host 0.0.0.0 --port 5000 " + tc.want),
				HealthPath: "/health", Warnings: tc.warnings, BusyMetrics: data.BusyMetrics,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Command: -want +got:\n%s", diff)
			}
		})
	}
}

func TestCommandRefuses(t *testing.T) {
	data := preset(t)
	for _, tc := range []struct {
		reason string
		change func(*engine.Input)
		want   string
	}{
		{
			"a value that llama-server would not start with",
			func(in *engine.Input) { in.Args = map[string]string{"ngl": "most"} },
			`inference.engine.args: flag "ngl" of engine llamacpp needs a whole number or one of auto, all, not "most"`,
		},
		{
			"the same in the ConfigMap",
			func(in *engine.Input) { in.Config = engine.Config{"llamacpp": {"flash-attn": "maybe"}} },
			`section "llamacpp" of inference_config.yaml: flag "flash-attn" of engine llamacpp must be one of on, off, auto, true, false, not "maybe"`,
		},
		{
			"a plan without weights",
			func(in *engine.Input) { in.Plan.Artifact = nil },
			"rendering llamacpp: the plan names no file of weights",
		},
		{
			"a plan without room",
			func(in *engine.Input) { in.Plan.Concurrency = 0 },
			"rendering llamacpp: the plan has room for 0 sequences of 4096 tokens",
		},
		{
			"a model without a name",
			func(in *engine.Input) { in.ServedNames = nil },
			"rendering llamacpp: the model has no served name",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data, 1)
			tc.change(&in)
			got, err := llamacpp.Command(in)
			if err == nil {
				t.Fatalf("Command = %v, want an error", got)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("Command: -want +got:\n%s", diff)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	data := preset(t)
	in := input(data, 1)
	in.Env = []engine.EnvVar{{Name: "GGML_CUDA_NO_PINNED", Value: "1"}, {Name: "LLAMA_ARG_PORT", Value: "80"}}
	got, err := llamacpp.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]engine.EnvVar{{Name: "GGML_CUDA_NO_PINNED", Value: "1"}}, got.Env); diff != "" {
		t.Errorf("Env: -want +got:\n%s", diff)
	}
	want := []string{"inference.engine.env: LLAMA_ARG_PORT is ignored, because variables that start with LLAMA_ARG_ set flags: set them in inference.engine.args"}
	if diff := cmp.Diff(want, got.Warnings); diff != "" {
		t.Errorf("Warnings: -want +got:\n%s", diff)
	}
}

// This version has every rendered flag, so the table in the presets and the code agree.
func TestRenderedFlagsAreInTheCatalogue(t *testing.T) {
	data := preset(t)
	for _, gpus := range []int{0, 1, 2} {
		got, err := llamacpp.Command(input(data, gpus))
		if err != nil {
			t.Fatal(err)
		}
		for _, arg := range got.Args {
			name, isFlag := strings.CutPrefix(arg, "--")
			if _, known := data.Flags[name]; isFlag && !known {
				t.Errorf("with %d GPUs: %s is not among the flags of %s %s", gpus, arg, data.Name, data.Version)
			}
		}
	}
}

// The order of maps does not change the command.
func TestCommandIsDeterministic(t *testing.T) {
	data := preset(t)
	in := input(data, 2)
	in.Args = map[string]string{"temp": "1", "top-k": "2", "seed": "3", "prio": "1", "no-warmup": "", "unknown-a": "", "unknown-b": "", "host": "", "model": ""}
	in.Config = engine.Config{"llamacpp": {"threads": "4", "batch-size": "512"}, "vllm": {"a": "1", "b": "2"}, "other": {"c": "3"}}
	first, err := llamacpp.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, err := llamacpp.Command(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("Command changes without a change of its input: -first +again:\n%s", diff)
		}
	}
}
