// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package physics predicts memory and speed of a model on GPUs: memory of the fullest GPU, tokens of KV cache, time
// to first token, time per output token.
//
// It must not know prices, machine types or preferences: the planner ranks, this package computes. It is pure, and
// its constants are data of the engines (catalog.MemoryProfile, catalog.Speed).
package physics

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// gib is a GiB in bytes.
const gib = 1 << 30

// Weights are a model's in one format.
type Weights struct {
	Format model.Quantization
	// Bytes of all tensors; 0 means an estimate from Format and shape.
	Bytes int64
	// Basis of Bytes.
	Basis v1beta1.Basis
	// Version of the engine that loads them; empty means the catalogue's.
	Version string
	// Adapters beside the model.
	Adapters Adapters
}

// loadedFactor is how much larger the quantised weights are on a GPU than on disk.
func (w *Weights) loadedFactor() float64 {
	if f := &w.Format; f.FormerFactor > 0 && w.Version != "" && older(w.Version, f.FormerUntil) {
		return f.FormerFactor
	}
	return max(w.Format.LoadedFactor, 1)
}

// Layout spreads one engine over GPUs.
type Layout struct {
	// TP GPUs share each layer, PP stages share the layers, DP replicas share the requests; at least 1.
	TP, PP, DP int
	// EP says that whole experts are spread over the TP × DP GPUs of a stage, in place of TP parts of each of
	// them on every replica. The replicas are parts of one engine then: they hold the rest of the layers and
	// the KV cache of their sequences for themselves, and step together
	// (docs/serving/expert_parallel_deployment.md and data_parallel_deployment.md of vLLM).
	EP bool
	// CP GPUs of each TP hold other tokens of the KV cache, in place of copies of the same; 0 means 1.
	CP int
	// Nodes of the layout: whole stages on each.
	Nodes int
	// LinkedGPUs of a machine that the GPUs' own link joins, and NetworkGBs of RDMA per GPU, as sku.SKU.
	LinkedGPUs int
	NetworkGBs float64
}

// cut is the number of parts of a stage's matrices, and the number of GPUs with whole experts; 0 if experts are cut
// like the rest.
type cut struct{ tp, experts int }

// cut of a layout.
func (l *Layout) cut() cut {
	out := cut{tp: max(l.TP, 1)}
	if l.EP {
		out.experts = l.group()
	}
	return out
}

// group is how many GPUs of a stage work on each step together.
func (l *Layout) group() int {
	if !l.EP {
		return max(l.TP, 1)
	}
	return max(l.TP, 1) * max(l.DP, 1)
}

// ranks returns the number of replicas that step together.
func (l *Layout) ranks() int { return l.group() / max(l.TP, 1) }

// Serving has the engine's settings.
type Serving struct {
	// MaxModelLen in tokens of one sequence, MaxNumSeqs sequences at once on each replica, and
	// MaxBatchedTokens computed in one step.
	MaxModelLen, MaxNumSeqs, MaxBatchedTokens int
	// Utilization is the engine's share of the GPU's memory.
	Utilization float64
	// KVType of the cache's elements: auto or empty for the model's own, fp8, …
	KVType string
	// Eager runs without CUDA graphs.
	Eager bool
	// Media limits images and videos.
	Media Media
	// Version of the engine; empty means the catalogue's. Async: a release that does not schedule asynchronously by
	// itself is asked to.
	Version string
	Async   bool
}

// Load is the clients' load: Concurrency sequences at any time, each of Input tokens answered by Output.
type Load struct {
	Input, Output, Concurrency int
	// Open: requests arrive one by one at random, Concurrency of them in flight on average, rather than from clients
	// with a common start.
	Open bool
	// Rate is the mean number of requests per second that arrive at random; above 0, it replaces Concurrency and Open.
	Rate float64
}

// Budget is the memory of the fullest GPU in GiB.
type Budget struct {
	Total, Weights, Activation, NonTorch, Graphs float64
	// Adapters' slots.
	Adapters float64
	// KVCache is the rest of the engine's share; negative if the engine does not start.
	KVCache float64
	// KVTokens in the cache of one replica with layers that keep every token; otherwise those of sequences of
	// MaxModelLen.
	KVTokens int
	// MaxConcurrency is how many sequences of MaxModelLen the cache of one replica holds.
	MaxConcurrency float64
	// Basis of the law. Measured: a start of the same set-up bears the KV cache out, or has lowered it.
	Basis    v1beta1.Basis
	Measured bool
}

// Pace is how fast a deployment serves under a load.
type Pace struct {
	// TTFT and TPOT in milliseconds, mean.
	TTFT, TPOT float64
	// OutputTokensPerSecond of all replicas.
	OutputTokensPerSecond float64
	// Queues: the load does not fit, and sequences wait; TTFT includes that.
	Queues bool
	// InFlight is the mean number of requests in the deployment under a rate: infinite if it cannot keep up, 0 under
	// other loads.
	InFlight float64
	// Slowdown is the factor on TPOT from the times of running engines; 0 if they changed nothing.
	Slowdown float64
	Basis    v1beta1.Basis
}
