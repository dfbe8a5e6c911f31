// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// MemoryProfile holds the constants of an engine with a profile run. At its start, the engine runs the model once. The
// rest of its share of the GPU's memory becomes the KV cache.
type MemoryProfile struct {
	// Basis is the least certain basis of the constants.
	Basis v1beta1.Basis `json:"basis"`
	// MeasuredUntil is the first release without a measured start. From this release on, the constants are estimates.
	// Empty means that there is no such release.
	MeasuredUntil string `json:"measuredUntil,omitempty"`
	// MarginGiB is the KV cache that stays free: more if the budget is an estimate.
	MarginGiB Margin `json:"marginGiB,omitzero"`
	// SpareGiB is the memory outside the engine's share: the CUDA context and other processes. MostUsed is the largest
	// share in any plan, and DefaultUsed the engine's default.
	SpareGiB    float64 `json:"spareGiB"`
	MostUsed    float64 `json:"mostUsed"`
	DefaultUsed float64 `json:"defaultUsed"`
	// FormerUsed is the default share of releases before UsedSince; 0 if it is the same.
	FormerUsed float64 `json:"formerUsed,omitempty"`
	UsedSince  string  `json:"usedSince,omitempty"`
	// The peak holds SamplerCopies copies of the logits (f32, one row per sequence), BatchCopies copies of the hidden
	// states of a batch, and FixedGiB in addition.
	SamplerCopies float64 `json:"samplerCopies"`
	BatchCopies   float64 `json:"batchCopies,omitempty"`
	FixedGiB      float64 `json:"fixedGiB"`
	// ForwardCopies is the number of copies of a batch's hidden states in the widest layer, besides the results of its
	// MLP.
	ForwardCopies float64 `json:"forwardCopies"`
	// Workspace is the memory of mixtures of experts on top of the peak; nil for none.
	Workspace *Workspace `json:"workspace,omitempty"`
	// Encoder is the memory of an image encoder besides its layers.
	Encoder EncoderProfile `json:"encoder,omitzero"`
	// LatentTokens is the number of tokens of earlier context that latent attention (MLA) expands at once.
	LatentTokens int `json:"latentTokens"`
	// WeightFactor is the size of loaded weights divided by the tensors' bytes. TablesGiB is the size of further
	// tables, such as positions.
	WeightFactor float64 `json:"weightFactor"`
	TablesGiB    float64 `json:"tablesGiB,omitempty"`
	// NonTorchGiB is the memory of libraries outside PyTorch: on a single GPU, on GPUs connected by PCIe, on two with
	// NVLink, and on four. Each further doubling adds as much as the first.
	NonTorchGiB NonTorch `json:"nonTorchGiB"`
	// Former are earlier releases with other amounts, latest first. Each lists only the differences from the later
	// ones.
	Former []FormerProfile `json:"former,omitempty"`
	// Graphs is the memory of CUDA graphs by number of parameters. The first matching step counts. From version
	// GraphsSince on, this memory is part of the engine's share of the GPU.
	Graphs      []GraphStep `json:"graphs"`
	GraphsSince string      `json:"graphsSince"`
	// BlockTokens is the number of tokens in a block of KV cache.
	BlockTokens int `json:"blockTokens"`
	// Defaults are the engine's own numbers of sequences and batch tokens by the memory of the GPU. The first matching
	// step counts. A plan replaces them.
	Defaults []BatchDefault `json:"defaults"`
}

// NonTorch is memory in GiB by the connection of the GPUs.
type NonTorch struct {
	Single float64 `json:"single"`
	PCIe   float64 `json:"pcie"`
	Pair   float64 `json:"pair"`
	Group  float64 `json:"group"`
}

// Workspace is the memory that the kernels of a mixture of experts keep for a batch.
type Workspace struct {
	// Except are formats of weights without this memory.
	Except []string `json:"except,omitempty"`
}

// Margin is the possible error of a budget in GiB, by its basis.
type Margin struct {
	Measured  float64 `json:"measured"`
	Estimated float64 `json:"estimated"`
}

// Of returns the margin in GiB for a basis.
func (m Margin) Of(b v1beta1.Basis) float64 {
	if b == v1beta1.BasisEstimated {
		return m.Estimated
	}
	return m.Measured
}

// EncoderProfile is the memory of an encoder of images, in GiB.
type EncoderProfile struct {
	// WeightsGiB is loaded on top of the checkpoint's weights, and KeptGiB on top of the encoded images.
	WeightsGiB float64 `json:"weightsGiB"`
	KeptGiB    float64 `json:"keptGiB"`
	// UnknownGiB is the peak of an encoder of unknown shape.
	UnknownGiB float64 `json:"unknownGiB"`
}

// FormerProfile holds the amounts of releases before Until.
type FormerProfile struct {
	// Until is the first release with other amounts.
	Until string `json:"until"`
	// SamplerCopies and NonTorchGiB are set if they differ. NoWorkspace is set if mixtures of experts kept no
	// workspace.
	SamplerCopies float64   `json:"samplerCopies,omitempty"`
	NonTorchGiB   *NonTorch `json:"nonTorchGiB,omitempty"`
	NoWorkspace   bool      `json:"noWorkspace,omitempty"`
}

// GraphStep is the memory of CUDA graphs for models up to a size.
type GraphStep struct {
	// ParamsB is the largest number of parameters, in 10^9; 0 means any.
	ParamsB float64 `json:"paramsB,omitempty"`
	// States, Experts and Formats limit the step to models with stateful layers, to mixtures of experts, and to weights
	// in some formats.
	States  bool     `json:"states,omitempty"`
	Experts bool     `json:"experts,omitempty"`
	Formats []string `json:"formats,omitempty"`
	GiB     float64  `json:"giB"`
}

// BatchDefault has the engine's default batch for some GPUs.
type BatchDefault struct {
	// LeastGiB is the least GPU memory for the step. Except are the GPU classes that it does not apply to.
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

// Default returns the engine's default numbers of sequences and batch tokens on a GPU of a class and memory size.
func (m MemoryProfile) Default(class string, gib float64) (sequences, batchTokens int) {
	for _, step := range m.Defaults {
		if gib >= step.LeastGiB && !slices.ContainsFunc(step.Except, func(name string) bool { return strings.HasPrefix(class, name) }) {
			return step.Sequences, step.BatchTokens
		}
	}
	return 0, 0
}
