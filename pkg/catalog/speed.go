// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"maps"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Speed holds the constants of a roofline model. Efficiencies are shares of the data sheet's figures.
type Speed struct {
	// Basis is the basis of the constants. Predictions are still estimates, unless there is a Measurement.
	Basis v1beta1.Basis `json:"basis"`
	// Dense are the kernels of matrices that every token uses, by the name of a quantization. The entry default is for
	// 16-bit weights and for weights that are decompressed to 16 bits. Experts are the kernels of experts behind a
	// router.
	Dense   map[string]Kernel `json:"dense"`
	Experts map[string]Kernel `json:"experts,omitempty"`
	// Skew measures how unevenly routers choose: the variance of the experts' popularities, which have a mean of 1.
	Skew float64 `json:"skew,omitempty"`
	// Generations are GPUs with better or worse kernels, by compute capability, or by class if a class differs from its
	// generation.
	Generations map[string]Generation `json:"generations,omitempty"`
	// KVBandwidth is attention's share of the bandwidth in decoding. Attention is its share of the 16-bit peak for a
	// long prompt. A prompt of AttentionTokens reaches half of that share.
	KVBandwidth     float64 `json:"kvBandwidth"`
	Attention       float64 `json:"attention"`
	AttentionTokens float64 `json:"attentionTokens,omitempty"`
	// Overheads in microseconds: LayerMicros in a layer without experts, ParallelMicros on top in a layer split over
	// GPUs, PromptMicros on top in a step with prompts, StepMicros in every step, and SequenceMicros for each sequence
	// of a step.
	LayerMicros    float64 `json:"layerMicros"`
	ParallelMicros float64 `json:"parallelMicros"`
	PromptMicros   float64 `json:"promptMicros"`
	StepMicros     float64 `json:"stepMicros"`
	SequenceMicros float64 `json:"sequenceMicros"`
	// Former has the larger overheads of earlier releases.
	Former FormerSpeed `json:"former,omitzero"`
	// FormerCache is the slower reading of the KV cache in earlier releases.
	FormerCache FormerCache `json:"formerCache,omitzero"`
	// FormerBlocks are whole blocks of rows that some releases computed for each expert.
	FormerBlocks FormerBlocks `json:"formerBlocks,omitzero"`
	// EagerMicros is the overhead of a layer outside CUDA graphs, in microseconds.
	EagerMicros float64 `json:"eagerMicros,omitempty"`
	// The time to first token is FirstMicros, plus FirstSteps steps, plus the time of the prompt. Clients start all
	// their sequences at once, so each open sequence adds Burst times the time of a prompt.
	FirstMicros float64 `json:"firstMicros"`
	FirstSteps  float64 `json:"firstSteps"`
	Burst       float64 `json:"burst"`
	// AllReduce has the tables of all-reduce times, by the link of the GPUs.
	AllReduce []AllReduce `json:"allReduce,omitempty"`
	// Pipeline is the share of a step's time in which the stages also work on other sequences.
	Pipeline float64 `json:"pipeline"`
	// Hops are messages from stage to stage.
	Hops Hops `json:"hops"`
}

// FormerSpeed holds the overhead of every step in earlier releases.
type FormerSpeed struct {
	Until      string  `json:"until"`
	StepMicros float64 `json:"stepMicros"`
}

// FormerCache describes how earlier releases read an 8-bit KV cache on GPUs of one compute capability: Share is the
// bandwidth as a part of that for a 16-bit cache.
type FormerCache struct {
	Until      string  `json:"until"`
	Capability string  `json:"capability"`
	Share      float64 `json:"share"`
}

// FormerBlocks describes how some releases computed experts of one format on GPUs of one compute capability. Each GPU
// computed Rows rows for each of its experts in every step, even if no token chose the expert. Engines on WithoutGPUs
// or more GPUs did not.
type FormerBlocks struct {
	Since       string `json:"since"`
	Until       string `json:"until"`
	Capability  string `json:"capability"`
	Format      string `json:"format"`
	Rows        int    `json:"rows"`
	WithoutGPUs int    `json:"withoutGPUs"`
}

// Kernel is the efficiency of matrix multiplications in one format.
type Kernel struct {
	// Bandwidth is the share of the memory bandwidth, and Compute the share of the peak.
	Bandwidth float64 `json:"bandwidth"`
	Compute   float64 `json:"compute"`
	// LayerMicros is the overhead of a layer of experts in microseconds, including its attention.
	LayerMicros float64 `json:"layerMicros,omitempty"`
	// Generations are GPU generations with their own kernel, by compute capability.
	Generations map[string]Variant `json:"generations,omitempty"`
}

// Variant has values that replace a kernel's.
type Variant struct {
	// Peak is the data type of the peak that Compute refers to, for example fp8 with 8-bit activations.
	Peak        string  `json:"peak,omitempty"`
	Bandwidth   float64 `json:"bandwidth,omitempty"`
	Compute     float64 `json:"compute,omitempty"`
	LayerMicros float64 `json:"layerMicros,omitempty"`
}

// On returns the kernel on a generation of GPUs. peak is empty for the format's own type.
func (k Kernel) On(computeCapability string) (own Kernel, peak string) {
	v := k.Generations[computeCapability]
	k.Bandwidth, k.Compute = cmp.Or(v.Bandwidth, k.Bandwidth), cmp.Or(v.Compute, k.Compute)
	k.LayerMicros = cmp.Or(v.LayerMicros, k.LayerMicros)
	return k, v.Peak
}

// Generation is the speed of kernels on a generation of GPUs, as a share of the speed on other GPUs.
type Generation struct {
	Bandwidth float64 `json:"bandwidth"`
	// Compute is for 16 bits, and NarrowCompute for fewer.
	Compute       float64 `json:"compute"`
	NarrowCompute float64 `json:"narrowCompute"`
	// Sinks is the speed of attention with sinks, as a share of other attention's; 0 means all of it.
	Sinks float64 `json:"sinks,omitempty"`
}

// AllReduce is a table of times for an all-reduce over GPUs.
type AllReduce struct {
	// Links are the kinds of link that the table covers. GPUs is the number of GPUs.
	Links []string `json:"links"`
	GPUs  int      `json:"gpus"`
	// Bytes and Micros are the measured points, ascending. Micros are in microseconds.
	Bytes  []float64 `json:"bytes"`
	Micros []float64 `json:"micros"`
}

// Hops are messages from one stage of a pipeline to the next.
type Hops struct {
	// Machine is a hop within a machine, RDMA between machines with RDMA, and Ethernet between machines without it.
	Machine  Hop `json:"machine"`
	RDMA     Hop `json:"rdma"`
	Ethernet Hop `json:"ethernet"`
	// Across is the time of an all-reduce between machines, as a multiple of the time on the GPUs' own link.
	Across float64 `json:"across"`
}

// Hop is one message: its latency, and its bandwidth if the hardware's is unknown.
type Hop struct {
	Micros float64 `json:"micros"`
	GBs    float64 `json:"gbs"`
}

// Clone returns a deep copy.
func (s Speed) Clone() Speed {
	s.AllReduce = slices.Clone(s.AllReduce)
	s.Dense, s.Experts, s.Generations = maps.Clone(s.Dense), maps.Clone(s.Experts), maps.Clone(s.Generations)
	for _, kernels := range []map[string]Kernel{s.Dense, s.Experts} {
		for name, k := range kernels {
			k.Generations = maps.Clone(k.Generations)
			kernels[name] = k
		}
	}
	for i := range s.AllReduce {
		a := &s.AllReduce[i]
		a.Links, a.Bytes, a.Micros = slices.Clone(a.Links), slices.Clone(a.Bytes), slices.Clone(a.Micros)
	}
	return s
}
