// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package physics predicts memory and speed of a model on GPUs: memory of the fullest GPU, tokens of KV cache, time to
// first token, time per output token.
//
// It must not know prices, machine types or preferences: the planner ranks, this package computes. It is pure. Its
// constants come from the engines' data (catalog.MemoryProfile, catalog.Speed).
package physics

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// gib is a GiB in bytes.
const gib = 1 << 30

// Weights are the weights of a model in one format.
type Weights struct {
	Format model.Quantization
	// Bytes is the size of all tensors; 0 means an estimate from Format and shape.
	Bytes int64
	// Basis of Bytes.
	Basis v1beta1.Basis
	// Version of the engine that loads them; empty means the catalogue's.
	Version string
	// Adapters to serve with the model.
	Adapters Adapters
}

// loadedFactor is the ratio of the size of quantised weights on a GPU to the size on disk.
func (w *Weights) loadedFactor() float64 {
	if f := &w.Format; f.FormerFactor > 0 && w.Version != "" && older(w.Version, f.FormerUntil) {
		return f.FormerFactor
	}
	return max(w.Format.LoadedFactor, 1)
}

// Layout spreads one engine over GPUs.
type Layout struct {
	// TP GPUs share each layer, PP stages divide the layers, DP replicas divide the requests; each is at least 1.
	TP, PP, DP int
	// EP: whole experts are spread over the TP × DP GPUs of a stage. Otherwise every replica has TP parts of each
	// expert. With EP, the replicas are parts of one engine: each has its own copy of the other weights and the KV
	// cache of its sequences, and all compute every step together (docs/serving/expert_parallel_deployment.md and
	// data_parallel_deployment.md of vLLM).
	EP bool
	// CP is how many GPUs of each TP group hold different tokens of the KV cache instead of copies; 0 means 1.
	CP int
	// Nodes is the number of machines. Each has whole stages.
	Nodes int
	// LinkedGPUs is the number of GPUs of a machine that their own link connects. NetworkGBs is the RDMA bandwidth per
	// GPU in GB/s. Both are as in sku.SKU.
	LinkedGPUs int
	NetworkGBs float64
}

// cut says how the GPUs of a stage divide its weights. tp is the number of parts of each matrix. experts is the number
// of GPUs that whole experts are spread over; 0 if experts are cut like the rest.
type cut struct{ tp, experts int }

// cut returns the cut of a layout.
func (l *Layout) cut() cut {
	out := cut{tp: max(l.TP, 1)}
	if l.EP {
		out.experts = l.group()
	}
	return out
}

// group returns the number of GPUs of a stage that compute every step together.
func (l *Layout) group() int {
	if !l.EP {
		return max(l.TP, 1)
	}
	return max(l.TP, 1) * max(l.DP, 1)
}

// ranks returns the number of replicas that compute every step together.
func (l *Layout) ranks() int { return l.group() / max(l.TP, 1) }

// Serving has the settings of an engine.
type Serving struct {
	// MaxModelLen is the longest sequence in tokens, MaxNumSeqs the number of sequences at once on each replica, and
	// MaxBatchedTokens the number of tokens in one step.
	MaxModelLen, MaxNumSeqs, MaxBatchedTokens int
	// Utilization is the engine's share of the GPU's memory.
	Utilization float64
	// KVType is the type of the KV cache, such as fp8; auto or empty means the model's own.
	KVType string
	// Eager runs without CUDA graphs.
	Eager bool
	// Media limits images and videos.
	Media Media
	// Version of the engine; empty means the catalogue's. Async: asynchronous scheduling is on, for a release that has
	// it off by default.
	Version string
	Async   bool
}

// Load is the clients' load: Concurrency requests at any time, each with Input tokens of prompt and Output tokens of
// answer.
type Load struct {
	Input, Output, Concurrency int
	// Open: requests arrive one by one at random, and Concurrency of them are in flight on average. Otherwise all
	// clients start at once.
	Open bool
	// Rate is the mean number of requests per second that arrive at random. If above 0, it replaces Concurrency and
	// Open.
	Rate float64
}

// Budget is the memory of the fullest GPU in GiB.
type Budget struct {
	Total, Weights, Activation, NonTorch, Graphs float64
	// Adapters is the memory of their slots.
	Adapters float64
	// KVCache is the rest of the engine's share; negative if the engine does not start.
	KVCache float64
	// KVTokens is the capacity of one replica's KV cache in tokens. If some layers do not keep every token, it counts
	// the tokens of sequences of MaxModelLen.
	KVTokens int
	// MaxConcurrency is the number of sequences of MaxModelLen that the KV cache of one replica holds.
	MaxConcurrency float64
	// Basis of the law. Measured: a start of the same set-up confirmed the KV cache or lowered it.
	Basis    v1beta1.Basis
	Measured bool
}

// Pace is the speed of a deployment under a load.
type Pace struct {
	// TTFT and TPOT are the mean time to first token and time per output token, in milliseconds.
	TTFT, TPOT float64
	// OutputTokensPerSecond is the sum over all replicas.
	OutputTokensPerSecond float64
	// Queues: the load does not fit, so sequences wait. TTFT includes the wait.
	Queues bool
	// InFlight is the mean number of requests in flight under a rate, infinite if the deployment cannot keep up; 0 for
	// other loads.
	InFlight float64
	// Slowdown is the factor by which the times of running engines raised TPOT; 0 if they did not.
	Slowdown float64
	Basis    v1beta1.Basis
}
