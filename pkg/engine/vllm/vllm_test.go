// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// input returns the input for a model without parsers on two GPUs.
func input(data catalog.Engine) engine.Input {
	return engine.Input{
		Data:  data,
		Model: model.Model{Name: "some-model"},
		Plan: planner.Plan{
			Nodes: 1, GPUsPerNode: 2, TensorParallel: 2, PipelineParallel: 1, DataParallel: 1, MaxModelLen: 4096, Concurrency: 4,
			MaxNumSeqs: 64, MaxBatchedTokens: 2048, GPUMemoryUtilization: 0.9, ComputeCapability: "8.0",
			Artifact: &model.Artifact{Engine: "vllm", Repo: "Org/Some-Model", Revision: "abc"},
		},
		ModelDir: "/models", ServedNames: []string{"some-model", "alias", "Org/Some-Model"}, Port: 5000,
	}
}

const (
	start = "/models --served-model-name some-model alias Org/Some-Model --host 0.0.0.0 --port 5000"
	fits  = " --max-model-len 4096 --max-num-seqs 64 --max-num-batched-tokens 2048 --gpu-memory-utilization 0.9"
	end   = " --allowed-media-domains none.invalid --disable-access-log-for-endpoints /health,/metrics"
	two   = start + " --tensor-parallel-size 2" + fits + end
)

func TestCommandCarriesThePlan(t *testing.T) {
	_, data := presetCatalog(t)
	for _, tc := range []struct {
		reason string
		change func(*engine.Input)
		want   string
	}{
		{"the model comes first, then names, place, sizes", func(*engine.Input) {}, two},
		{
			"events of the KV cache for a named consumer",
			func(in *engine.Input) { in.PublishKVEvents = true },
			start + " --tensor-parallel-size 2" + fits +
				` --kv-events-config {"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"}` + end,
		},
		{
			"replicas and stages where there are several",
			func(in *engine.Input) {
				in.Plan.GPUsPerNode, in.Plan.PipelineParallel, in.Plan.DataParallel = 8, 2, 2
				in.Plan.StageLayers = []int{17, 15}
			},
			start + " --tensor-parallel-size 2 --pipeline-parallel-size 2 --data-parallel-size 2" + fits + end,
		},
		{
			"replicas that share a mixture's experts",
			func(in *engine.Input) {
				in.Plan.GPUsPerNode, in.Plan.TensorParallel, in.Plan.DataParallel, in.Plan.ExpertParallel = 4, 1, 4, true
			},
			start + " --tensor-parallel-size 1 --data-parallel-size 4 --enable-expert-parallel" + fits + end,
		},
		{
			"a type of KV cache where it is not the model's own",
			func(in *engine.Input) { in.Plan.KVCacheType = "fp8" },
			start + " --tensor-parallel-size 2" + fits + " --kv-cache-dtype fp8" + end,
		},
		{
			"GPUs older than 8.0 compute in fp16",
			func(in *engine.Input) { in.Plan.ComputeCapability = "7.5" },
			start + " --tensor-parallel-size 2" + fits + " --dtype half" + end,
		},
		{
			"a capability of two digits is not an old one",
			func(in *engine.Input) { in.Plan.ComputeCapability = "10.0" },
			two,
		},
		{
			"GPUs of unknown capability are left to the engine",
			func(in *engine.Input) { in.Plan.ComputeCapability = "" },
			two,
		},
		{
			"what the artifact needs, in its order, and over the plan",
			func(in *engine.Input) {
				in.Plan.KVCacheType = "fp8"
				in.Plan.Artifact.Flags = []model.Flag{
					{Name: "tokenizer-mode", Value: "mistral", Why: "x"},
					{Name: "enable-expert-parallel", Why: "x"},
					{Name: "kv-cache-dtype", Value: "fp8_ds_mla", Why: "x"},
				}
			},
			start + " --tensor-parallel-size 2" + fits + " --kv-cache-dtype fp8_ds_mla --tokenizer-mode mistral --enable-expert-parallel" + end,
		},
		{
			"parsers of the model's tool calls and reasoning",
			func(in *engine.Input) { in.Model.ToolParser, in.Model.ReasoningParser = "hermes", "qwen3" },
			start + " --tensor-parallel-size 2" + fits + " --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3" + end,
		},
		{
			"code of the repository only where the preset needs it and the administrator allows it",
			func(in *engine.Input) {
				in.Model.RemoteCode, in.AllowRemoteCode, in.Plan.Artifact.Revision = true, true, strings.Repeat("a", 40)
			},
			start + " --tensor-parallel-size 2" + fits + " --trust-remote-code" + end,
		},
		{
			"leave to run code is not taken where the preset does not need it",
			func(in *engine.Input) { in.AllowRemoteCode = true },
			two,
		},
		{
			"running answers get the time that the pod has",
			func(in *engine.Input) { in.Drain = 110*time.Second + time.Millisecond },
			two + " --shutdown-timeout 110",
		},
		{
			"the first of several machines serves",
			func(in *engine.Input) {
				in.Plan.Nodes, in.Plan.PipelineParallel = 2, 2
				in.Member = &engine.Member{Rank: "0", Leader: "chat-0.chat-headless"}
				in.Args = map[string]string{"api-server-count": "2"}
			},
			start + " --tensor-parallel-size 2 --pipeline-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr chat-0.chat-headless" +
				fits + end + " --api-server-count 2",
		},
		{
			"the others compute the same and serve nobody",
			func(in *engine.Input) {
				in.Plan.Nodes, in.Plan.PipelineParallel = 2, 2
				in.Member = &engine.Member{Rank: "$(POD_INDEX)", Leader: "chat-0.chat-headless"}
				in.Args = map[string]string{"api-server-count": "2"}
			},
			start + " --tensor-parallel-size 2 --pipeline-parallel-size 2 --nnodes 2 --node-rank $(POD_INDEX) --master-addr chat-0.chat-headless" +
				" --headless" + fits + end,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			tc.change(&in)
			got, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Fields(tc.want), got.Args); diff != "" {
				t.Errorf("Args: -want +got:\n%s", diff)
			}
			for _, at := range got.References {
				if got.Args[at-1] != "--node-rank" {
					t.Errorf("the argument behind %s is meant as a reference", got.Args[at-1])
				}
			}
			if isWorker := in.Member.IsWorker(); isWorker != (got.HealthPath == "") || in.Plan.Nodes > 1 != (len(got.References) == 1) {
				t.Errorf("worker %t: health at %q, references at %v", isWorker, got.HealthPath, got.References)
			}
			if len(got.Warnings) > 0 {
				t.Errorf("warnings without a cause: %v", got.Warnings)
			}
		})
	}
}

func TestCommandTakesTheUsersFlags(t *testing.T) {
	_, data := presetCatalog(t)
	for _, tc := range []struct {
		reason   string
		config   engine.Config
		args     map[string]string
		change   func(*engine.Input)
		want     string
		warnings []string
	}{
		{
			reason: "args win over the ConfigMap, which wins over the plan",
			config: engine.Config{"vllm": {"seed": "1", "stream_interval": "4", "max_num_batched_tokens": "1024"}},
			args:   map[string]string{"--seed": "2"},
			want: start + " --tensor-parallel-size 2 --max-model-len 4096 --max-num-seqs 64 --max-num-batched-tokens 1024" +
				" --gpu-memory-utilization 0.9" + end + " --seed 2 --stream-interval 4",
		},
		{
			reason: "what the plan was made with is the plan's: it says by itself where it is another value",
			config: engine.Config{"vllm": {"max-model-len": "auto", "gpu_memory_utilization": "0.5", "max-num-seqs": "8"}},
			args:   map[string]string{"tp": "4", "pp": "2", "dp": "2", "kv-cache-dtype": "fp8"},
			want:   two,
		},
		{
			reason: "a chat template of the user's own passes, one of an image that does not run here cannot",
			config: engine.Config{"vllm": {"chat-template": "/workspace/chat_templates/tool-chat.jinja"}},
			want:   two,
			warnings: []string{"flag chat-template: /workspace/chat_templates/tool-chat.jinja is a file in KAITO's image, which does not run " +
				"here, so the model's own template is used: give the template's text instead"},
		},
		{
			reason: "switches, lists, sizes and JSON",
			config: engine.Config{"vllm": {
				"enable-prefix-caching": "False", "enforce-eager": "true", "cudagraph-capture-sizes": "[1, 2, 4]",
				"allowed-media-domains": "a.example b.example", "max-num-queued-tokens": "32K", "limit-mm-per-prompt": `{"image": 1}`,
			}},
			want: strings.Replace(two, "none.invalid", "a.example b.example", 1) + " --cudagraph-capture-sizes 1 2 4 --no-enable-prefix-caching --enforce-eager" +
				` --limit-mm-per-prompt {"image":§1} --max-num-queued-tokens 32768`,
		},
		{
			reason: "members of an object, given one by one as vLLM allows it",
			config: engine.Config{"vllm": {
				"compilation_config.pass_config.fuse_allreduce_rms": "False", "compilation-config.mode": "3",
				"compilation-config": `{"mode": 0, "cudagraph_mode": "NONE"}`,
			}},
			want: two + ` --compilation-config {"cudagraph_mode":"NONE","mode":3,"pass_config":{"fuse_allreduce_rms":false}}`,
		},
		{
			reason: "a parser of the user's replaces the preset's",
			args:   map[string]string{"tool-call-parser": "pythonic", "enable-auto-tool-choice": "true"},
			change: func(in *engine.Input) { in.Model.ToolParser = "hermes" },
			want:   start + " --tensor-parallel-size 2" + fits + " --enable-auto-tool-choice --tool-call-parser pythonic" + end,
		},
		{
			reason: "larger batches than planned are replaced",
			args:   map[string]string{"max-num-batched-tokens": "16k"},
			want:   two,
			warnings: []string{
				"flag max-num-batched-tokens: 2048 is used instead of 16000, because the plan has no memory for more",
			},
		},
		{
			reason: "smaller batches than sequences would not start",
			args:   map[string]string{"max-num-batched-tokens": "63"},
			want:   two,
			warnings: []string{
				"flag max-num-batched-tokens: 2048 is used instead of 63, because a batch needs one token for each of 64 sequences",
			},
		},
		{
			reason:   "32 bits need twice the memory",
			args:     map[string]string{"dtype": "float"},
			want:     two,
			warnings: []string{"flag dtype: float is ignored, because it needs twice the planned memory"},
		},
		{
			reason:   "bf16 on GPUs that lack it",
			args:     map[string]string{"dtype": "bfloat16"},
			change:   func(in *engine.Input) { in.Plan.ComputeCapability = "7.5" },
			want:     start + " --tensor-parallel-size 2" + fits + " --dtype half" + end,
			warnings: []string{"flag dtype: half is used instead of bfloat16, which needs compute capability 8.0: the GPUs have 7.5"},
		},
		{
			reason: "experts that there are none of",
			args:   map[string]string{"ep": "true"},
			want:   two,
		},
		{
			reason: "experts that a plan of a former version says nothing of",
			args:   map[string]string{"enable-expert-parallel": "true"},
			change: func(in *engine.Input) { in.Model.Shape.MoE = &model.MoE{Experts: 8} },
			want:   two + " --enable-expert-parallel",
		},
		{
			reason: "experts that the plan spreads already",
			args:   map[string]string{"enable-expert-parallel": "true"},
			change: func(in *engine.Input) {
				in.Model.Shape.MoE, in.Plan.ExpertParallel = &model.MoE{Experts: 8}, true
			},
			want: start + " --tensor-parallel-size 2 --enable-expert-parallel" + fits + end,
		},
		{
			reason: "fewer bits than were planned",
			args:   map[string]string{"quantization": "fp8"},
			change: func(in *engine.Input) { in.Plan.Artifact.Quantization = "bf16" },
			want:   two + " --quantization fp8",
			warnings: []string{
				"flag quantization: fp8 reduces the weights during loading, and the plan does not include that: " +
					"to plan with smaller weights, name their format in inference.engine.allowedQuantizations instead",
			},
		},
		{
			reason: "the bits that were planned",
			args:   map[string]string{"quantization": "awq"},
			change: func(in *engine.Input) { in.Plan.Artifact.Quantization = "awq" },
			want:   two + " --quantization awq",
		},
		{
			reason: "other bits than the weights have",
			args:   map[string]string{"q": "gptq"},
			change: func(in *engine.Input) { in.Plan.Artifact.Quantization = "awq" },
			want:   two + " --quantization gptq",
			warnings: []string{
				"flag quantization: the weights declare their format, awq, and the engine does not start if gptq is " +
					"another format: leave the flag out",
			},
		},
		{
			reason: "what the artifact cannot do without stays",
			args:   map[string]string{"tokenizer-mode": "hf", "kv-cache-dtype": "bfloat16", "load-format": "mistral"},
			change: func(in *engine.Input) {
				in.Plan.Artifact.Flags = []model.Flag{
					{Name: "tokenizer-mode", Value: "mistral", Why: "the tokenizer is Mistral's own"},
					{Name: "kv-cache-dtype", Value: "fp8", Why: "the kernels know no other"},
					{Name: "load-format", Value: "mistral", Why: "x"},
				}
			},
			want: start + " --tensor-parallel-size 2" + fits + " --tokenizer-mode mistral --kv-cache-dtype fp8 --load-format mistral" + end,
			warnings: []string{
				"flag kv-cache-dtype: fp8 is used instead of bfloat16, because the kernels know no other",
				"flag tokenizer-mode: mistral is used instead of hf, because the tokenizer is Mistral's own",
			},
		},
		{
			reason: "drafts and adapters are the user's risk",
			args:   map[string]string{"speculative-config": `{"method":"ngram"}`, "enable-lora": "true"},
			want:   two + ` --enable-lora --speculative-config {"method":"ngram"}`,
			warnings: []string{
				"flag enable-lora: it needs more memory than planned: lower gpu-memory-utilization if the engine does not start",
				"flag speculative-config: it needs more memory than planned: lower gpu-memory-utilization if the engine does not start",
			},
		},
		{
			reason: "what Modelberth relies on stays, and what the version does not know is named",
			config: engine.Config{
				"": {"max_probe_steps": "6"}, "llamacpp": {"threads": "4"},
				"vllm": {"swap-space": "4", "disable-log-requests": "", "kv-events-config.endpoint": "tcp://*:1"},
			},
			args: map[string]string{
				"trust_remote_code": "true", "model": "a/b", "host": "::", "config": "/etc/x", "tool-server": "demo",
				"worker-cls": "x", "nnodes": "3", "lora-modules": "a=b",
			},
			want: two,
			warnings: []string{
				`inference_config.yaml: max_probe_steps is ignored, because engine vllm has no such setting`,
				`inference_config.yaml: section "llamacpp" (threads) is ignored, because engine vllm serves the model: put flags of that engine into section "vllm"`,
				`section "vllm" of inference_config.yaml: disable-log-requests and swap-space are ignored, because engine vllm 0.31.0 has no such flag`,
				`section "vllm" of inference_config.yaml: kv-events-config.endpoint is ignored, because the events carry the tokens of prompts, ` +
					`and only the administrator may name their readers (chart value kvEvents.consumer)`,
				`inference.engine.args: lora-modules is ignored, because adapters belong in inference.adapters`,
				`inference.engine.args: tool-server is ignored, because it lets any client of the endpoint run commands, read files or send requests from inside the cluster`,
				`inference.engine.args: worker-cls is ignored, because it makes the server run code from outside its image`,
				`inference.engine.args: config is ignored, because it reads flags from a file, which bypasses every check`,
				`inference.engine.args: trust_remote_code is ignored, because only the catalogue may allow a model to run code from its repository`,
				`inference.engine.args: host is ignored, because the Service and the probes rely on its value`,
				`inference.engine.args: nnodes is ignored, because the plan decides how the model spreads over machines and GPUs`,
				`inference.engine.args: model is ignored, because the weights are the files that Modelberth fetched and verified`,
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			in.Config, in.Args = tc.config, tc.args
			if tc.change != nil {
				tc.change(&in)
			}
			got, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(tc.want)
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "§", " ")
			}
			if diff := cmp.Diff(want, got.Args); diff != "" {
				t.Errorf("Args: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, got.Warnings); diff != "" {
				t.Errorf("Warnings: -want +got:\n%s", diff)
			}
		})
	}
}

func TestCommandRefuses(t *testing.T) {
	_, data := presetCatalog(t)
	args := func(name, value string) func(*engine.Input) {
		return func(in *engine.Input) { in.Args = map[string]string{name: value} }
	}
	for _, tc := range []struct {
		reason string
		change func(*engine.Input)
		want   string
	}{
		{"a word for a number", args("stream-interval", "often"), `inference.engine.args: flag "stream-interval" of engine vllm needs a whole number, not "often"`},
		{"a size that is none", args("max-model-len", "32kb"), `inference.engine.args: flag "max-model-len" of engine vllm needs a whole number, as in 32768, 32k or 32K or one of auto, not "32kb"`},
		{"a value outside of its list", args("kv-cache-dtype", "fp4"), `inference.engine.args: flag "kv-cache-dtype" of engine vllm must be one of auto, float16, bfloat16, fp8, fp8_e4m3, fp8_e5m2, fp8_inc, fp8_ds_mla, nvfp4_ds_mla, turboquant_k8v4, turboquant_4bit_nc, turboquant_k3v4_nc, turboquant_3bit_nc, int4_per_token_head, int8_per_token_head, fp8_per_token_head, nvfp4, nvfp4_4over6, not "fp4"`},
		{"JSON that is none", args("limit-mm-per-prompt", "image=2"), `inference.engine.args: flag "limit-mm-per-prompt" of engine vllm needs JSON, not "image=2"`},
		{
			"a value that smuggles a flag in", args("allowed-media-domains", "a --trust-remote-code"),
			`flag "allowed-media-domains" of engine vllm has a value that begins with a dash, so the engine's parser takes the value for a flag: use another value`,
		},
		{
			"the same as one value", args("chat-template", "--trust-remote-code"),
			`flag "chat-template" of engine vllm has a value that begins with a dash, so the engine's parser takes the value for a flag: use another value`,
		},
		{
			"a fraction that its parser takes for a flag", args("watermark", "-0.5"),
			`flag "watermark" of engine vllm has a value that begins with a dash, so the engine's parser takes the value for a flag: use another value`,
		},
		{"tools without a parser", args("enable-auto-tool-choice", ""), `flag enable-auto-tool-choice of engine vllm needs tool-call-parser: set it to the name of a parser`},
		{"outputs without requests", args("enable-log-outputs", ""), `flag enable-log-outputs of engine vllm also needs enable-log-requests: set both`},
		{
			"metrics of requests without statistics",
			func(in *engine.Input) {
				in.Args = map[string]string{"enable-per-request-metrics": "", "disable-log-stats": ""}
			},
			`flags enable-per-request-metrics and disable-log-stats of engine vllm cannot be combined: keep one`,
		},
		{"a negative interval", args("sse-keep-alive-interval", "-1"), `flag sse-keep-alive-interval of engine vllm must not be negative: 0 switches it off`},
		{
			"more active sequences than there are", args("max-num-active-seqs", "65"),
			`flag max-num-active-seqs of engine vllm is 65: set it to at most 64, the plan's max-num-seqs`,
		},
		{"a plan without weights", func(in *engine.Input) { in.Plan.Artifact = nil }, "rendering vllm: the plan names no weights"},
		{"a plan without GPUs", func(in *engine.Input) { in.Plan.GPUsPerNode = 0 }, "rendering vllm: the plan has no GPU"},
		{
			"a plan of no shape", func(in *engine.Input) { in.Plan.TensorParallel = 0 },
			"rendering vllm: the plan has tensor, pipeline and data parallelism 0, 1 and 1: each must be at least 1",
		},
		{
			"a plan without room", func(in *engine.Input) { in.Plan.MaxNumSeqs = 0 },
			"rendering vllm: the plan has room for 0 sequences of 4096 tokens in batches of 2048",
		},
		{
			"a plan of more than all memory", func(in *engine.Input) { in.Plan.GPUMemoryUtilization = 1.1 },
			"rendering vllm: the plan uses 1.1 of the GPUs' memory",
		},
		{
			"layers of another number of stages", func(in *engine.Input) { in.Plan.StageLayers = []int{1, 2} },
			"rendering vllm: the plan divides the layers over 2 stages and has 1 stages",
		},
		{"a model without a name", func(in *engine.Input) { in.ServedNames = nil }, "rendering vllm: the model has no served name"},
		{
			"several machines, none of them named", func(in *engine.Input) { in.Plan.Nodes = 2 },
			"rendering vllm: the plan has 2 machines: name the member to render",
		},
		{
			"replicas on several machines",
			func(in *engine.Input) {
				in.Plan.Nodes, in.Plan.DataParallel, in.Member = 2, 2, &engine.Member{Rank: "0"}
			},
			"rendering vllm: the plan has 2 replicas on 2 machines, which this version cannot start",
		},
		{
			"code of the repository without leave", func(in *engine.Input) { in.Model.RemoteCode = true },
			"inference.preset.name: some-model runs code from its repository, and this installation does not allow that: " +
				"ask the administrator to allow remote code, or choose another model",
		},
		{
			"code that a branch can change", func(in *engine.Input) { in.Model.RemoteCode, in.AllowRemoteCode = true, true },
			`inference.preset.name: some-model runs code from Org/Some-Model at revision "abc", and that revision can change: ` +
				"ask the administrator to name a commit as the artifact's revision in the catalogue, or to turn on hub.describe, which pins one",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			tc.change(&in)
			got, err := vllm.Command(in)
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
	_, data := presetCatalog(t)
	in := input(data)
	in.CacheDir = "/cache"
	in.Plan.PipelineParallel, in.Plan.StageLayers = 3, []int{12, 11, 9}
	in.Env = []engine.EnvVar{
		{Name: "HF_HUB_OFFLINE", Value: "0"},
		{Name: "NCCL_DEBUG", Value: "INFO"},
		{Name: "VLLM_PP_LAYER_PARTITION", Value: "1,1,30"},
		{Name: "VLLM_SERVER_DEV_MODE", Value: "1"},
	}
	got, err := vllm.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	want := []engine.EnvVar{
		{Name: "HF_HUB_OFFLINE", Value: "0"},
		{Name: "VLLM_NO_USAGE_STATS", Value: "1"},
		{Name: "USER", Value: "vllm"},
		{Name: "VLLM_MEDIA_URL_ALLOW_REDIRECTS", Value: "0"},
		{Name: "VLLM_CACHE_ROOT", Value: "/cache/vllm"},
		{Name: "TRITON_CACHE_DIR", Value: "/cache/triton"},
		{Name: "FLASHINFER_WORKSPACE_BASE", Value: "/cache/flashinfer"},
		{Name: "VLLM_PP_LAYER_PARTITION", Value: "12,11,9"},
		{Name: "NCCL_DEBUG", Value: "INFO"},
	}
	if diff := cmp.Diff(want, got.Env); diff != "" {
		t.Errorf("Env: -want +got:\n%s", diff)
	}
	warnings := []string{
		"inference.engine.env: VLLM_PP_LAYER_PARTITION is ignored, because the plan decides how the model spreads over machines and GPUs",
		"inference.engine.env: VLLM_SERVER_DEV_MODE is ignored, because it opens routes that let every client control the server",
	}
	if diff := cmp.Diff(warnings, got.Warnings); diff != "" {
		t.Errorf("Warnings: -want +got:\n%s", diff)
	}
}

// A client could otherwise make the server read addresses inside the cluster by links to images.
func TestRequestsCannotLinkToAnyHost(t *testing.T) {
	_, data := presetCatalog(t)
	const redirects = "VLLM_MEDIA_URL_ALLOW_REDIRECTS"
	for _, tc := range []struct {
		reason  string
		domains []string
		want    []string
	}{
		{"no host by default: an empty list is all of them", nil, []string{"none.invalid"}},
		{"those that the administrator names", []string{"a.example", "b.example"}, []string{"a.example", "b.example"}},
		{"all of them where the administrator says so", []string{"a.example", "*"}, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			in.MediaDomains = tc.domains
			command, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if at := slices.Index(command.Args, "--allowed-media-domains"); at >= 0 {
				got = command.Args[at+1 : at+1+len(tc.want)]
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("domains: -want +got:\n%s", diff)
			}
			if isLimited := slices.Contains(command.Env, engine.EnvVar{Name: redirects, Value: "0"}); isLimited != (tc.want != nil) {
				t.Errorf("redirects are refused is %v, want %v", isLimited, tc.want != nil)
			}
		})
	}
}

func TestSharedMemory(t *testing.T) {
	_, data := presetCatalog(t)
	for _, tc := range []struct {
		reason string
		gpus   int
		args   map[string]string
		want   int
	}{
		{"one GPU", 1, nil, 3},
		{"each GPU's process has its share", 8, nil, 10},
		{"images kept in shared memory", 2, map[string]string{"mm-processor-cache-type": "shm"}, 8},
		{"a size of their own", 2, map[string]string{"mm-processor-cache-type": "shm", "mm-processor-cache-gb": "0.5"}, 5},
		{"images kept elsewhere", 2, map[string]string{"mm-processor-cache-type": "lru", "mm-processor-cache-gb": "16"}, 4},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			in.Plan.GPUsPerNode, in.Args = tc.gpus, tc.args
			got, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			if got.SharedMemoryGiB != tc.want {
				t.Errorf("%d GiB of shared memory, want %d", got.SharedMemoryGiB, tc.want)
			}
		})
	}
}

func TestWeights(t *testing.T) {
	_, data := presetCatalog(t)
	others := []string{"*.json", "*.jinja", "*.model", "*.model.v*", "*.tiktoken", "*.txt"}
	for _, tc := range []struct {
		reason string
		change func(*engine.Input)
		want   engine.Selection
	}{
		{
			"Hugging Face's form, and not the same again in Mistral's", func(*engine.Input) {},
			engine.Selection{Weights: []string{"*.safetensors"}, Others: others, Except: []string{"consolidated*"}},
		},
		{
			"Mistral's form where the artifact loads it",
			func(in *engine.Input) {
				in.Plan.Artifact.Flags = []model.Flag{{Name: "load-format", Value: "mistral", Why: "x"}}
			},
			engine.Selection{Weights: []string{"consolidated*.safetensors"}, Others: others},
		},
		{
			"code only where it is run",
			func(in *engine.Input) { in.Model.RemoteCode, in.AllowRemoteCode, in.OwnFiles = true, true, true },
			engine.Selection{Weights: []string{"*.safetensors"}, Others: append(slices.Clip(others), "*.py"), Except: []string{"consolidated*"}},
		},
		{
			"an artifact that lists its files",
			func(in *engine.Input) { in.Plan.Artifact.Files = []model.File{{Path: "a.safetensors"}} },
			engine.Selection{},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(data)
			tc.change(&in)
			got, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Weights); diff != "" {
				t.Errorf("Weights: -want +got:\n%s", diff)
			}
		})
	}
}

// The order of maps does not change the command.
func TestCommandIsDeterministic(t *testing.T) {
	_, data := presetCatalog(t)
	in := input(data)
	in.Args = map[string]string{"seed": "1", "stream-interval": "2", "cc.mode": "1", "cc.a.b": "2", "ac.x": "y", "unknown-a": "", "unknown-b": "", "host": "", "model": "a"}
	in.Config = engine.Config{"vllm": {"max-logprobs": "4", "block-size": "32", "cc.c": "3"}, "llamacpp": {"a": "1", "b": "2"}, "other": {"c": "3"}}
	first, err := vllm.Command(in)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, err := vllm.Command(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("Command changes without a change of its input: -first +again:\n%s", diff)
		}
	}
}

// FuzzConfig renders arbitrary ConfigMaps. The command always has only flags of the table, each of ours once, and no
// reserved flag of the user.
func FuzzConfig(f *testing.F) {
	_, data := presetCatalog(f)
	for _, seed := range []string{
		"vllm:\n  max-model-len: 32k\n  tp: 4\n",
		"vllm:\n  allowed-media-domains: a --trust-remote-code\n",
		"vllm:\n  cudagraph-capture-sizes: '[1,2]'\n  compilation-config.mode: 3\n  compilation-config: '{\"a\":{}}'\n",
		"vllm:\n  chat-template: \"{{ x }}\\n--host\"\n  seed: -1\n",
		"vllm:\n  cc: 'null'\n  cc.a: ''\n  cc.a.b: 1\n",
		"vllm:\n  max-num-queued-tokens: 99999999999t\n  gpu-memory-utilization: 1e400\n",
		"max_probe_steps: 6\nllamacpp: {a: b}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := engine.ParseConfig(text)
		if err != nil {
			return
		}
		in := input(data)
		in.Config = config
		got, err := vllm.Command(in)
		if err != nil {
			return
		}
		if got.Args[0] != "/models" {
			t.Fatalf("the first argument is %q, not the model", got.Args[0])
		}
		if problems := foreign(data, got.Args); len(problems) > 0 {
			t.Fatalf("%q: %v", text, problems)
		}
		seen := map[string]int{}
		for _, arg := range got.Args {
			seen[arg]++
		}
		for _, once := range []string{"--host", "--port", "--served-model-name", "--max-model-len", "--tensor-parallel-size"} {
			if seen[once] != 1 {
				t.Fatalf("%q: %s occurs %d times", text, once, seen[once])
			}
		}
		for _, group := range data.Reserved {
			for _, name := range group.Flags {
				if seen["--"+name] > 0 && !strings.Contains(two, "--"+name+" ") {
					t.Fatalf("%q: the reserved flag %s got through", text, name)
				}
			}
		}
		for _, warning := range got.Warnings {
			if len([]rune(warning)) > 512 || strings.ContainsAny(warning, "\r\n") {
				t.Fatalf("warning is too long or has several lines: %q", warning)
			}
		}
	})
}
