// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// MemoryProfile holds the constants of an engine with a profile run: at its start it runs the model once, takes the
// unused part of its share of the GPU's memory, and gives it to the KV cache.
type MemoryProfile struct {
	// Basis of the constants: the worst of them.
	Basis v1beta1.Basis `json:"basis"`
	// MeasuredUntil is the first release without a logged start: from it on the constants are estimates. Empty means
	// none.
	MeasuredUntil string `json:"measuredUntil,omitempty"`
	// MarginGiB of KV cache stays free, more if the budget is an estimate.
	MarginGiB Margin `json:"marginGiB,omitzero"`
	// SpareGiB of a GPU outside the share: the CUDA context and other processes, and the largest share of any plan.
	SpareGiB    float64 `json:"spareGiB"`
	MostUsed    float64 `json:"mostUsed"`
	DefaultUsed float64 `json:"defaultUsed"`
	// FormerUsed is the share of releases before UsedSince; 0 if it is the same.
	FormerUsed float64 `json:"formerUsed,omitempty"`
	UsedSince  string  `json:"usedSince,omitempty"`
	// SamplerCopies of the logits (f32, one row per sequence) are held at the peak, with BatchCopies of the
	// hidden states of a batch, and FixedGiB in addition.
	SamplerCopies float64 `json:"samplerCopies"`
	BatchCopies   float64 `json:"batchCopies,omitempty"`
	FixedGiB      float64 `json:"fixedGiB"`
	// ForwardCopies of a batch's hidden states exist in the widest layer, beside the results of its MLP.
	ForwardCopies float64 `json:"forwardCopies"`
	// Workspace is the memory of mixtures of experts in addition to the peak; nil for none.
	Workspace *Workspace `json:"workspace,omitempty"`
	// Encoder is the memory of an image encoder in addition to its layers.
	Encoder EncoderProfile `json:"encoder,omitzero"`
	// LatentTokens of earlier context are expanded at once by latent attention.
	LatentTokens int `json:"latentTokens"`
	// WeightFactor is the size of loaded weights over the tensors' bytes; TablesGiB are further tables, such as those
	// of positions.
	WeightFactor float64 `json:"weightFactor"`
	TablesGiB    float64 `json:"tablesGiB,omitempty"`
	// NonTorchGiB is the memory of libraries outside the framework on one GPU alone, on GPUs joined over PCIe, on two
	// joined by a link, and on four; each doubling adds as much as the first one.
	NonTorchGiB NonTorch `json:"nonTorchGiB"`
	// Former are releases with other amounts, latest first: each differs from those after it.
	Former []FormerProfile `json:"former,omitempty"`
	// Graphs is the memory of CUDA graphs by number of parameters; the first step that holds the model counts. From version
	// GraphsSince on, it is taken out of the engine's share of the GPU.
	Graphs      []GraphStep `json:"graphs"`
	GraphsSince string      `json:"graphsSince"`
	// BlockTokens is the unit of KV cache.
	BlockTokens int `json:"blockTokens"`
	// Sequences and BatchTokens are the engine's own defaults by the memory of the GPU; the first step that holds the
	// GPU counts. A plan replaces them.
	Defaults []BatchDefault `json:"defaults"`
}

// NonTorch is memory by how GPUs are joined, in GiB.
type NonTorch struct {
	Single float64 `json:"single"`
	PCIe   float64 `json:"pcie"`
	Pair   float64 `json:"pair"`
	Group  float64 `json:"group"`
}

// Workspace is the memory that a mixture's kernels keep for a batch.
type Workspace struct {
	// Except are formats without such memory.
	Except []string `json:"except,omitempty"`
}

// Margin is the error of a budget, in GiB by its basis.
type Margin struct {
	Measured  float64 `json:"measured"`
	Estimated float64 `json:"estimated"`
}

// Of a basis.
func (m Margin) Of(b v1beta1.Basis) float64 {
	if b == v1beta1.BasisEstimated {
		return m.Estimated
	}
	return m.Measured
}

// EncoderProfile is the memory of an encoder of images, in GiB.
type EncoderProfile struct {
	// WeightsGiB are loaded in addition to the checkpoint's, KeptGiB in addition to the encoded images.
	WeightsGiB float64 `json:"weightsGiB"`
	KeptGiB    float64 `json:"keptGiB"`
	// UnknownGiB is the peak of encoders of unknown shape.
	UnknownGiB float64 `json:"unknownGiB"`
}

// FormerProfile holds the amounts of releases before one.
type FormerProfile struct {
	// Until is the first release that it does not hold for.
	Until string `json:"until"`
	// SamplerCopies and NonTorchGiB if they differ, and whether mixtures kept no workspace.
	SamplerCopies float64   `json:"samplerCopies,omitempty"`
	NonTorchGiB   *NonTorch `json:"nonTorchGiB,omitempty"`
	NoWorkspace   bool      `json:"noWorkspace,omitempty"`
}

// GraphStep is the memory of CUDA graphs of models up to a size.
type GraphStep struct {
	// ParamsB is the largest number of parameters, in 10^9; 0 means any.
	ParamsB float64 `json:"paramsB,omitempty"`
	// States, Experts and Formats limit it to models with stateful layers, to mixtures, and to weights in some
	// formats.
	States  bool     `json:"states,omitempty"`
	Experts bool     `json:"experts,omitempty"`
	Formats []string `json:"formats,omitempty"`
	GiB     float64  `json:"giB"`
}

// BatchDefault is the engine's own choice.
type BatchDefault struct {
	// LeastGiB of GPU memory for the step, and GPU classes outside it.
	LeastGiB    float64  `json:"leastGiB"`
	Except      []string `json:"except,omitempty"`
	Sequences   int      `json:"sequences"`
	BatchTokens int      `json:"batchTokens"`
}

// Clone returns a deep copy.
func (m MemoryProfile) Clone() MemoryProfile {
	m.Graphs, m.Defaults, m.Former = slices.Clone(m.Graphs), slices.Clone(m.Defaults), slices.Clone(m.Former)
	if m.Workspace != nil {
		m.Workspace = &Workspace{Except: slices.Clone(m.Workspace.Except)}
	}
	for i := range m.Graphs {
		m.Graphs[i].Formats = slices.Clone(m.Graphs[i].Formats)
	}
	for i, former := range m.Former {
		if former.NonTorchGiB != nil {
			libraries := *former.NonTorchGiB
			m.Former[i].NonTorchGiB = &libraries
		}
	}
	for i := range m.Defaults {
		m.Defaults[i].Except = slices.Clone(m.Defaults[i].Except)
	}
	return m
}

// Default returns the engine's own number of sequences and tokens of a batch on a GPU of a class and size.
func (m MemoryProfile) Default(class string, gib float64) (sequences, batchTokens int) {
	for _, step := range m.Defaults {
		if gib >= step.LeastGiB && !slices.ContainsFunc(step.Except, func(name string) bool { return strings.HasPrefix(class, name) }) {
			return step.Sequences, step.BatchTokens
		}
	}
	return 0, 0
}
