// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// checkServe are the checks of serve itself, before anything is loaded.
func (s *Setup) checkServe(Environment) error {
	a := s.Args
	switch {
	case a.Model == "":
		return fail("ValueError", "vllmsim: no model is given, and none is downloaded here")
	case a.On("enable-auto-tool-choice", false) && a.Text("tool-call-parser", "") == "":
		return fail("TypeError", "Error: --enable-auto-tool-choice requires --tool-call-parser")
	case a.On("enable-log-outputs", false) && !a.On("enable-log-requests", false):
		return fail("TypeError", "Error: --enable-log-outputs requires --enable-log-requests")
	case a.Int("sse-keep-alive-interval", 0) < 0:
		return fail("ValueError", "Error: --sse-keep-alive-interval must be a non-negative integer (0 disables keep-alive comments).")
	case a.On("enable-per-request-metrics", false) && a.On("disable-log-stats", false):
		return fail("ValueError", "Error: --enable-per-request-metrics requires engine statistics logging; "+
			"remove --disable-log-stats to enable per-request metrics.")
	case s.Headless() && a.Int("api-server-count", 0) > 0:
		return fail("ValueError", fmt.Sprintf("--api-server-count=%d cannot be used with --headless "+
			"(no API servers are started in headless mode).", a.Int("api-server-count", 0)))
	}
	if err := checkMedia(a.Text("limit-mm-per-prompt", "")); err != nil {
		return err
	}
	return checkKVEvents(a.Text("kv-events-config", ""))
}

// mediaOptions are the fields of vLLM's dummy options for each kind of media (vllm/config/multimodal.py); other kinds
// have a count alone.
func mediaOptions() map[string][]string {
	return map[string][]string{
		"image": {"count", "height", "width"}, "video": {"count", "height", "num_frames", "width"}, "audio": {"count", "length"},
	}
}

// checkMedia is the validation of limits for each kind of media: a number, or options.
func checkMedia(text string) error {
	if text == "" || text == "None" {
		return nil
	}
	bad := func(where, why string) error {
		return fail("pydantic_core._pydantic_core.ValidationError", "1 validation error for MultiModalConfig\nlimit_per_prompt"+where+"\n  "+why)
	}
	var kinds map[string]any
	if err := json.Unmarshal([]byte(text), &kinds); err != nil {
		return bad("", "Input should be a valid dictionary")
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		options, isObject := kinds[kind].(map[string]any)
		if !isObject {
			options = map[string]any{"count": kinds[kind]}
		}
		known := mediaOptions()[kind]
		if known == nil {
			known = []string{"count"}
		}
		for _, name := range slices.Sorted(maps.Keys(options)) {
			number, isNumber := options[name].(float64)
			switch where := "." + kind + "." + name; {
			case !slices.Contains(known, name):
				return bad(where, "Unexpected keyword argument [type=unexpected_keyword_argument]")
			case !isNumber || number != math.Trunc(number):
				return bad(where, "Input should be a valid integer")
			case number < 0, number == 0 && name != "count":
				return bad(where, "Input should be greater than or equal to 0")
			}
		}
	}
	return nil
}

// kvEventsKeys are the fields of vLLM's KVEventsConfig.
func kvEventsKeys() []string {
	return []string{"buffer_steps", "enable_kv_cache_events", "endpoint", "hwm", "max_queue_size", "publisher", "replay_endpoint", "topic"}
}

func checkKVEvents(text string) error {
	if text == "" || text == "None" {
		return nil
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fail("ValueError", "kv-events-config is not an object: "+text)
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if !slices.Contains(kvEventsKeys(), key) {
			return fail("pydantic_core._pydantic_core.ValidationError", "1 validation error for KVEventsConfig\n"+key+
				"\n  Unexpected keyword argument [type=unexpected_keyword_argument]")
		}
	}
	return nil
}

// checkUnsupported refuses the features of vLLM this program lacks, so no test relies on them.
func (s *Setup) checkUnsupported(Environment) error {
	for _, name := range []string{
		"config", "grpc", "uds", "ssl-keyfile", "ssl-certfile", "data-parallel-rank", "data-parallel-start-rank",
		"data-parallel-size-local", "data-parallel-hybrid-lb", "data-parallel-external-lb",
		"data-parallel-multi-port-external-lb", "enable-elastic-ep", "prefill-context-parallel-size",
	} {
		if s.Args.Has(name) {
			return fail("NotImplementedError", "vllmsim: --"+name+" is not simulated")
		}
	}
	if backend := s.Args.Text("distributed-executor-backend", "mp"); backend != "mp" {
		return fail("NotImplementedError", "vllmsim: --distributed-executor-backend "+backend+" is not simulated")
	}
	return nil
}

// sharedLeast is more than a container's default of 64 MiB of shared memory.
const sharedLeast = 65 << 20

// checkEnvironment checks the pod's provisions for the image.
func (s *Setup) checkEnvironment(env Environment) error {
	if port := env.Variables["VLLM_PORT"]; port != "" {
		if _, err := strconv.Atoi(port); err != nil {
			return fail("ValueError", fmt.Sprintf("VLLM_PORT '%s' appears to be a URI. "+
				"This may be caused by a Kubernetes service discovery issue.", port))
		}
	}
	if servers := s.Args.Int("api-server-count", int64(s.Data)); UpdatesAdapters(env.Variables) && servers > 1 && !s.Headless() {
		return fail("ValueError", "VLLM_ALLOW_RUNTIME_LORA_UPDATING cannot be used with api_server_count > 1")
	}
	if !env.UserKnown && env.Variables["USER"] == "" && env.Variables["LOGNAME"] == "" {
		return fail("KeyError", fmt.Sprintf("'getpwuid(): uid not found: %d'", env.UserID))
	}
	if s.LocalGPUs() > 1 && env.SharedBytes >= 0 && env.SharedBytes < sharedLeast {
		return fail("RuntimeError", fmt.Sprintf("NCCL error: unhandled system error: Error while creating shared memory segment: "+
			"/dev/shm has %d MiB", env.SharedBytes>>20))
	}
	return nil
}

// checkLayout is about --nnodes and its companions.
func (s *Setup) checkLayout(Environment) error {
	for _, name := range []string{"tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "nnodes"} {
		if s.Args.Int(name, 1) < 1 {
			return fail("pydantic_core._pydantic_core.ValidationError", fmt.Sprintf("1 validation error for ParallelConfig\n%s\n"+
				"  Input should be greater than or equal to 1", strings.ReplaceAll(name, "-", "_")))
		}
	}
	world := s.Tensor * s.Pipeline * s.Data
	switch {
	case world%s.Nodes != 0:
		return fail("ValueError", fmt.Sprintf("Invalid data-parallel launch options: `--nnodes %d` must evenly divide the total "+
			"world size (%d). Adjust `--nnodes`, `--data-parallel-size`, `--pipeline-parallel-size`, or `--tensor-parallel-size`.",
			s.Nodes, world))
	case s.Rank < 0 || s.Rank >= s.Nodes:
		return fail("ValueError", fmt.Sprintf("Invalid data-parallel launch options: `--node-rank` must be between 0 and %d; "+
			"got `--node-rank %d`. Set it to this node's zero-based index.", s.Nodes-1, s.Rank))
	case s.Nodes > 1 && s.Data > 1:
		return fail("NotImplementedError", "vllmsim: data parallelism over several nodes is not simulated")
	case s.Headless() && s.Rank == 0:
		return fail("ValueError", "vllmsim: --headless on node rank 0 leaves no node with an API server")
	case !s.Headless() && s.Rank > 0:
		return fail("ValueError", fmt.Sprintf("vllmsim: node rank %d must have --headless, because only rank 0 serves the API", s.Rank))
	case s.Nodes > 1 && s.Rank > 0 && !s.Args.Has("master-addr"):
		return fail("ValueError", "vllmsim: --master-addr is 127.0.0.1, but the leader is on another node")
	}
	return nil
}

// checkModel is about how the model can be cut.
func (s *Setup) checkModel(env Environment) error {
	c := s.Model.Config
	larger, smaller := max(c.KVHeads, s.Tensor), min(c.KVHeads, s.Tensor)
	switch {
	case c.Heads%s.Tensor != 0:
		return fail("ValueError", fmt.Sprintf("Total number of attention heads (%d) must be divisible by tensor parallel size (%d).",
			c.Heads, s.Tensor))
	case larger%smaller != 0:
		return fail("AssertionError", fmt.Sprintf("%d key-value heads over tensor parallel size %d", c.KVHeads, s.Tensor))
	case c.Intermediate%s.Tensor != 0:
		return fail("AssertionError", fmt.Sprintf("%d is not divisible by %d", c.Intermediate, s.Tensor))
	}
	return s.checkPartition(env.Variables["VLLM_PP_LAYER_PARTITION"])
}

func (s *Setup) checkPartition(text string) error {
	layers := s.Model.Config.Layers
	if text == "" {
		if s.Pipeline > layers {
			return fail("ValueError", fmt.Sprintf("%d pipeline stages for %d layers", s.Pipeline, layers))
		}
		return nil
	}
	parts := strings.Split(text, ",")
	sum := 0
	for _, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return fail("ValueError", "Invalid partition string: "+text)
		}
		sum += n
	}
	switch {
	case len(parts) != s.Pipeline:
		return fail("ValueError", fmt.Sprintf("len(partitions)=%d does not match pp_size=%d.", len(parts), s.Pipeline))
	case sum != layers:
		return fail("ValueError", fmt.Sprintf("sum(partitions)=%d does not match num_hidden_layers=%d.", sum, layers))
	}
	return nil
}

// Defaults of the server on a GPU with 70 GiB or more.
const (
	defaultSeqs  = 1024
	defaultBatch = 8192
)

// readLimits is about context and batch.
func (s *Setup) readLimits(env Environment) error {
	native := s.Model.Config.Context
	s.MaxLen = int(s.Args.Int("max-model-len", int64(native)))
	if s.MaxLen < 1 {
		s.MaxLen = native
	}
	if s.MaxLen > native && native > 0 && env.Variables["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] != "1" {
		return fail("pydantic_core._pydantic_core.ValidationError", fmt.Sprintf("1 validation error for ModelConfig\n"+
			"  Value error, User-specified max_model_len (%d) is greater than the derived max_model_len (max_position_embeddings=%d "+
			"or model_max_length=None in model's config.json). To allow overriding this maximum, set the env var "+
			"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.", s.MaxLen, native))
	}
	s.MaxSeqs, s.MaxBatch = int(s.Args.Int("max-num-seqs", 0)), int(s.Args.Int("max-num-batched-tokens", 0))
	if s.MaxBatch == 0 {
		s.MaxBatch = max(defaultBatch, s.MaxSeqs)
	}
	if s.MaxSeqs == 0 {
		s.MaxSeqs = min(defaultSeqs, s.MaxBatch)
	}
	s.Utilization = s.Args.Float("gpu-memory-utilization", defaultUtilization)
	switch {
	case s.MaxSeqs < 1 || s.MaxBatch < 1:
		return fail("pydantic_core._pydantic_core.ValidationError", "1 validation error for SchedulerConfig\n"+
			"  Input should be greater than or equal to 1")
	case s.MaxBatch < s.MaxSeqs:
		return fail("pydantic_core._pydantic_core.ValidationError", fmt.Sprintf("1 validation error for SchedulerConfig\n"+
			"  Value error, max_num_batched_tokens (%d) must be greater than or equal to max_num_seqs (%d).", s.MaxBatch, s.MaxSeqs))
	case s.MaxBatch < s.MaxLen && !s.Args.On("enable-chunked-prefill", true):
		return fail("pydantic_core._pydantic_core.ValidationError", fmt.Sprintf("1 validation error for SchedulerConfig\n"+
			"  Value error, max_num_batched_tokens (%d) is smaller than max_model_len (%d). This effectively limits the maximum "+
			"sequence length to max_num_batched_tokens and makes vLLM reject longer sequences.", s.MaxBatch, s.MaxLen))
	case s.Utilization <= 0 || s.Utilization > 1:
		return fail("pydantic_core._pydantic_core.ValidationError", fmt.Sprintf("1 validation error for CacheConfig\n"+
			"gpu_memory_utilization\n  Input should be greater than 0 and less than or equal to 1, input_value=%v", s.Utilization))
	}
	return nil
}
