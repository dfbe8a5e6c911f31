// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"maps"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Speed holds the constants of a roofline. Efficiencies are shares of the data sheet's figures.
type Speed struct {
	// Basis of the constants. Predictions are estimates even so: a Measurement makes them more.
	Basis v1beta1.Basis `json:"basis"`
	// Dense are the kernels of matrices for every token, by the name of a quantization; default holds for those of 16
	// bits and for all that are decompressed to 16 bits. Experts are those behind a router.
	Dense   map[string]Kernel `json:"dense"`
	Experts map[string]Kernel `json:"experts,omitempty"`
	// Skew is how unevenly routers choose: the variance of the experts' popularities, of mean 1.
	Skew float64 `json:"skew,omitempty"`
	// Generations of GPUs with better or worse kernels, by compute capability, or by class if one differs from its
	// generation.
	Generations map[string]Generation `json:"generations,omitempty"`
	// KVBandwidth is attention's share of the bandwidth in decoding, Attention its share of the 16-bit peak over a
	// long prompt; a prompt of AttentionTokens reaches half of it.
	KVBandwidth     float64 `json:"kvBandwidth"`
	Attention       float64 `json:"attention"`
	AttentionTokens float64 `json:"attentionTokens,omitempty"`
	// LayerMicros are lost in a layer without experts, ParallelMicros on top in a layer cut over GPUs, PromptMicros
	// on top in a step with prompts. StepMicros are lost in every step, SequenceMicros for each sequence of it.
	LayerMicros    float64 `json:"layerMicros"`
	ParallelMicros float64 `json:"parallelMicros"`
	PromptMicros   float64 `json:"promptMicros"`
	StepMicros     float64 `json:"stepMicros"`
	SequenceMicros float64 `json:"sequenceMicros"`
	// Earlier releases lose more.
	Former FormerSpeed `json:"former,omitzero"`
	// FormerCache of earlier releases is read more slowly.
	FormerCache FormerCache `json:"formerCache,omitzero"`
	// FormerBlocks are the whole blocks of rows that some releases multiplied by experts.
	FormerBlocks FormerBlocks `json:"formerBlocks,omitzero"`
	// EagerMicros are lost in a layer outside CUDA graphs.
	EagerMicros float64 `json:"eagerMicros,omitempty"`
	// A first token comes FirstMicros, FirstSteps steps and its prompt's time after the request, and Burst
	// of its prompt's time later for each of the sequences that the clients keep open: they start at one
	// moment.
	FirstMicros float64 `json:"firstMicros"`
	FirstSteps  float64 `json:"firstSteps"`
	Burst       float64 `json:"burst"`
	// AllReduce by the link of the GPUs.
	AllReduce []AllReduce `json:"allReduce,omitempty"`
	// Pipeline is the share of a step's time in which stages work on other sequences, too.
	Pipeline float64 `json:"pipeline"`
	// Hops are messages from stage to stage.
	Hops Hops `json:"hops"`
}

// FormerSpeed holds the losses in every step of earlier releases.
type FormerSpeed struct {
	Until      string  `json:"until"`
	StepMicros float64 `json:"stepMicros"`
}

// FormerCache is how earlier releases read a KV cache of 8 bits on GPUs of one compute capability: with a share of
// the bandwidth that one of 16 bits reaches.
type FormerCache struct {
	Until      string  `json:"until"`
	Capability string  `json:"capability"`
	Share      float64 `json:"share"`
}

// FormerBlocks is how some releases multiplied experts of one format on GPUs of one compute capability: each GPU
// computed Rows rows for each of its experts in every step, whether or not a token chose that expert. Engines over
// WithoutGPUs GPUs and more did not.
type FormerBlocks struct {
	Since       string `json:"since"`
	Until       string `json:"until"`
	Capability  string `json:"capability"`
	Format      string `json:"format"`
	Rows        int    `json:"rows"`
	WithoutGPUs int    `json:"withoutGPUs"`
}

// Kernel is how well matrices of one format run.
type Kernel struct {
	// Bandwidth is the share of the memory bandwidth, Compute the share of the peak.
	Bandwidth float64 `json:"bandwidth"`
	Compute   float64 `json:"compute"`
	// LayerMicros lost in a layer, of experts.
	LayerMicros float64 `json:"layerMicros,omitempty"`
	// Generations of GPUs with a kernel of their own, by compute capability.
	Generations map[string]Variant `json:"generations,omitempty"`
}

// Variant of a kernel: its values replace the kernel's.
type Variant struct {
	// Peak is the type of the peak of which Compute is a share, for example fp8 with activations of 8 bits.
	Peak        string  `json:"peak,omitempty"`
	Bandwidth   float64 `json:"bandwidth,omitempty"`
	Compute     float64 `json:"compute,omitempty"`
	LayerMicros float64 `json:"layerMicros,omitempty"`
}

// On returns the kernel on a generation of GPUs; peak is empty for the format's own type.
func (k Kernel) On(computeCapability string) (own Kernel, peak string) {
	v := k.Generations[computeCapability]
	k.Bandwidth, k.Compute = cmp.Or(v.Bandwidth, k.Bandwidth), cmp.Or(v.Compute, k.Compute)
	k.LayerMicros = cmp.Or(v.LayerMicros, k.LayerMicros)
	return k, v.Peak
}

// Generation is the speed of kernels on a generation of GPUs, as a share of that elsewhere.
type Generation struct {
	Bandwidth float64 `json:"bandwidth"`
	// Compute in 16 bits, NarrowCompute in fewer.
	Compute       float64 `json:"compute"`
	NarrowCompute float64 `json:"narrowCompute"`
	// Sinks is the speed of attention with sinks, as a share of other attention's; 0 means all of it.
	Sinks float64 `json:"sinks,omitempty"`
}

// AllReduce is the time for the sum of a tensor over GPUs.
type AllReduce struct {
	// Links are the kinds of link that the table covers, and GPUs is the number of GPUs.
	Links []string `json:"links"`
	GPUs  int      `json:"gpus"`
	// Bytes and Micros of measured points, ascending.
	Bytes  []float64 `json:"bytes"`
	Micros []float64 `json:"micros"`
}

// Hops are messages from one stage of a pipeline to the next.
type Hops struct {
	// Machine is within a machine, RDMA between machines with it, Ethernet between those without.
	Machine  Hop `json:"machine"`
	RDMA     Hop `json:"rdma"`
	Ethernet Hop `json:"ethernet"`
	// Across is how many times the GPUs' own link a sum between machines takes.
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
