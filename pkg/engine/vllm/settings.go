// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
)

// quietRoutes are the routes of probes and scrapers. Requests arrive every few seconds, and in the log they would bury
// the last messages of a failing engine.
const quietRoutes = "/health,/metrics"

// kvEvents turns on the events of the KV cache. They are off by default because they carry the token ids of prompts.
// Most values are the defaults, written out so that the port matches the Service.
const kvEvents = `{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"}`

// settings returns the flags for the plan, in reading order.
func settings(in engine.Input) []engine.Setting {
	host, port := "0.0.0.0", in.Port
	if in.LoopbackPort > 0 {
		host, port = "127.0.0.1", in.LoopbackPort
	}
	list := []engine.Setting{
		{Name: "served-model-name", Value: strings.Join(in.ServedNames, " ")},
		{Name: "host", Value: host},
		{Name: "port", Value: strconv.Itoa(port)},
	}
	list = append(list, layout(in)...)
	list = append(list, sizes(in.Plan)...)
	if isOlderThanAmpere(in) {
		// bf16 needs compute capability 8.0. Without this flag, vLLM falls back to fp16 itself, and its warning looks like
		// an error.
		list = append(list, engine.Setting{Name: "dtype", Value: "half"})
	}
	list = engine.Merge(list, needed(in))
	if in.Model.RemoteCode {
		list = append(list, engine.Setting{Name: "trust-remote-code", Value: "true"})
	}
	if in.Model.ToolParser != "" {
		list = append(list,
			engine.Setting{Name: "enable-auto-tool-choice", Value: "true"},
			engine.Setting{Name: "tool-call-parser", Value: in.Model.ToolParser})
	}
	if in.Model.ReasoningParser != "" {
		list = append(list, engine.Setting{Name: "reasoning-parser", Value: in.Model.ReasoningParser})
	}
	list = append(list, adapters(in)...)
	if in.PublishKVEvents {
		list = append(list, engine.Setting{Name: "kv-events-config", Value: kvEvents})
	}
	list = append(list, media(in)...)
	list = append(list, engine.Setting{Name: "disable-access-log-for-endpoints", Value: quietRoutes})
	if seconds := int(in.Drain / time.Second); seconds > 0 {
		list = append(list, engine.Setting{Name: "shutdown-timeout", Value: strconv.Itoa(seconds)})
	}
	return list
}

// noMediaDomain resolves nowhere (RFC 2606). It stands for no domain, because the server reads an empty list as all.
const noMediaDomain = "none.invalid"

// media limits the hosts of linked media. Otherwise any client could make the server read every address that the pod
// reaches. Media within a request (data: URLs) are always accepted. A server with a text model accepts the flag and
// fetches nothing.
func media(in engine.Input) []engine.Setting {
	domains := in.MediaDomains
	switch {
	case slices.Contains(domains, engine.AnyMediaDomain):
		return nil
	case len(domains) == 0:
		domains = []string{noMediaDomain}
	}
	return []engine.Setting{{Name: "allowed-media-domains", Value: strings.Join(domains, " ")}}
}

// layout returns the flags that spread the model over GPUs and machines. The leader's address joins several machines to
// a group. Only the leader answers requests.
func layout(in engine.Input) []engine.Setting {
	list := []engine.Setting{{Name: "tensor-parallel-size", Value: strconv.Itoa(in.Plan.TensorParallel)}}
	if n := in.Plan.PipelineParallel; n > 1 {
		list = append(list, engine.Setting{Name: "pipeline-parallel-size", Value: strconv.Itoa(n)})
	}
	if n := in.Plan.DataParallel; n > 1 {
		list = append(list, engine.Setting{Name: "data-parallel-size", Value: strconv.Itoa(n)})
	}
	if n := in.Plan.ContextParallel; n > 1 {
		list = append(list, engine.Setting{Name: flagContext, Value: strconv.Itoa(n)})
	}
	if in.Plan.ExpertParallel {
		list = append(list, engine.Setting{Name: flagExperts, Value: "true"})
	}
	if in.Plan.Nodes < 2 || in.Member == nil {
		return list
	}
	list = append(list,
		engine.Setting{Name: "nnodes", Value: strconv.Itoa(in.Plan.Nodes)},
		engine.Setting{Name: "node-rank", Value: in.Member.Rank},
		engine.Setting{Name: "master-addr", Value: in.Member.Leader})
	if in.Member.IsWorker() {
		list = append(list, engine.Setting{Name: "headless", Value: "true"})
	}
	return list
}

// sizes returns the flags with sizes that fit the plan's memory.
func sizes(plan planner.Plan) []engine.Setting {
	list := []engine.Setting{
		{Name: "max-model-len", Value: strconv.Itoa(plan.MaxModelLen)},
		{Name: "max-num-seqs", Value: strconv.Itoa(plan.MaxNumSeqs)},
		{Name: "max-num-batched-tokens", Value: strconv.Itoa(plan.MaxBatchedTokens)},
		{Name: "gpu-memory-utilization", Value: strconv.FormatFloat(plan.GPUMemoryUtilization, 'f', -1, 64)},
	}
	if plan.KVCacheType != "" {
		list = append(list, engine.Setting{Name: "kv-cache-dtype", Value: plan.KVCacheType})
	}
	return list
}

// forRank removes flags that only the leader accepts. None of them affects the computation.
func forRank(in engine.Input, list []engine.Setting) []engine.Setting {
	if !in.Member.IsWorker() {
		return list
	}
	return slices.DeleteFunc(list, func(s engine.Setting) bool { return s.Name == "api-server-count" })
}

// needed returns the flags that the artifact requires. They take precedence over the plan.
func needed(in engine.Input) []engine.Setting {
	list := make([]engine.Setting, 0, len(in.Plan.Artifact.Flags))
	for _, flag := range in.Plan.Artifact.Flags {
		list = append(list, engine.Setting{Name: flag.Name, Value: orTrue(flag.Value)})
	}
	return list
}

func orTrue(value string) string {
	if value == "" {
		return "true"
	}
	return value
}

// isOlderThanAmpere reports whether the GPUs are known to lack bf16.
func isOlderThanAmpere(in engine.Input) bool {
	major, _, _ := strings.Cut(in.Plan.ComputeCapability, ".")
	number, err := strconv.Atoi(major)
	return err == nil && number < 8
}
