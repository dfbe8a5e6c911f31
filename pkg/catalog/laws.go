// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// MemoryProfile holds the constants of an engine that, when it starts, runs the model once, takes what
// that did not need of a share of the GPU's memory, and gives it to the KV cache.
type MemoryProfile struct {
	// Basis of the constants: the worst of them.
	Basis v1beta1.Basis `json:"basis"`
	// MeasuredUntil is the first release of which no logged start bears out the constants: from it on they are
	// estimates. Empty means that they hold for all.
	MeasuredUntil string `json:"measuredUntil,omitempty"`
	// MarginGiB of KV cache is left to spare, more where the budget is an estimate.
	MarginGiB Margin `json:"marginGiB,omitzero"`
	// SpareGiB of a GPU outside the share: the CUDA context and what other processes need, and the
	// largest share that is ever asked for.
	SpareGiB    float64 `json:"spareGiB"`
	MostUsed    float64 `json:"mostUsed"`
	DefaultUsed float64 `json:"defaultUsed"`
	// FormerUsed is the share that releases before UsedSince ask for; 0 where none did otherwise.
	FormerUsed float64 `json:"formerUsed,omitempty"`
	UsedSince  string  `json:"usedSince,omitempty"`
	// SamplerCopies of the logits (f32, one row per sequence) are held at the peak, with BatchCopies of the
	// hidden states of a batch, and FixedGiB beside.
	SamplerCopies float64 `json:"samplerCopies"`
	BatchCopies   float64 `json:"batchCopies,omitempty"`
	FixedGiB      float64 `json:"fixedGiB"`
	// ForwardCopies of a batch's hidden states are held in the widest layer, beside what its MLP computes.
	ForwardCopies float64 `json:"forwardCopies"`
	// Workspace is what mixtures of experts keep beside the peak; nil where they do not.
	Workspace *Workspace `json:"workspace,omitempty"`
	// Encoder is what an encoder of images takes beside its layers.
	Encoder EncoderProfile `json:"encoder,omitzero"`
	// LatentTokens of earlier context are expanded at once where attention is latent.
	LatentTokens int `json:"latentTokens"`
	// WeightFactor is how much larger loaded weights are than the tensors' bytes, and TablesGiB what is loaded
	// beside them, such as tables of positions.
	WeightFactor float64 `json:"weightFactor"`
	TablesGiB    float64 `json:"tablesGiB,omitempty"`
	// NonTorchGiB is what the libraries allocate outside the framework on one GPU alone, on GPUs joined
	// over PCIe, on two joined by a link, and on four; each doubling adds as much as the first one.
	NonTorchGiB NonTorch `json:"nonTorchGiB"`
	// Former are releases that took other amounts, latest first: each says what differs from those after it.
	Former []FormerProfile `json:"former,omitempty"`
	// Graphs are the steps of the memory of CUDA graphs by parameters; the first that holds the model
	// counts. GraphsSince is the version that takes them out of the share.
	Graphs      []GraphStep `json:"graphs"`
	GraphsSince string      `json:"graphsSince"`
	// BlockTokens is the unit in which KV cache is given out.
	BlockTokens int `json:"blockTokens"`
	// Sequences and BatchTokens are the engine's own defaults, which a plan replaces, by the memory of
	// the GPU; the first step that holds the GPU counts.
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
	// Except are formats whose kernels keep none.
	Except []string `json:"except,omitempty"`
}

// Margin is what a budget may be off, in GiB by its basis.
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
	// WeightsGiB are loaded beside the checkpoint's, KeptGiB beside the encoded images.
	WeightsGiB float64 `json:"weightsGiB"`
	KeptGiB    float64 `json:"keptGiB"`
	// UnknownGiB is the peak of encoders whose shape is not known.
	UnknownGiB float64 `json:"unknownGiB"`
}

// FormerProfile is what releases before one took otherwise.
type FormerProfile struct {
	// Until is the first release that it does not hold for.
	Until string `json:"until"`
	// SamplerCopies and NonTorchGiB where they differ, and whether mixtures kept no workspace.
	SamplerCopies float64   `json:"samplerCopies,omitempty"`
	NonTorchGiB   *NonTorch `json:"nonTorchGiB,omitempty"`
	NoWorkspace   bool      `json:"noWorkspace,omitempty"`
}

// GraphStep is the memory of CUDA graphs of models up to a size.
type GraphStep struct {
	// ParamsB is the largest number of parameters, in 10^9; 0 means any.
	ParamsB float64 `json:"paramsB,omitempty"`
	// States says that it is for models only of which layers keep a state, Experts for mixtures only, and
	// Formats for weights in one of them only.
	States  bool     `json:"states,omitempty"`
	Experts bool     `json:"experts,omitempty"`
	Formats []string `json:"formats,omitempty"`
	GiB     float64  `json:"giB"`
}

// BatchDefault is what the engine does where nothing is said.
type BatchDefault struct {
	// LeastGiB of GPU memory that the step is for, and GPU classes that it is not for.
	LeastGiB    float64  `json:"leastGiB"`
	Except      []string `json:"except,omitempty"`
	Sequences   int      `json:"sequences"`
	BatchTokens int      `json:"batchTokens"`
}

// Clone returns a copy that shares nothing with it.
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

// Default returns how many sequences and how many tokens of a batch the engine takes on a GPU of a class
// and size where nothing is said.
func (m MemoryProfile) Default(class string, gib float64) (sequences, batchTokens int) {
	for _, step := range m.Defaults {
		if gib >= step.LeastGiB && !slices.ContainsFunc(step.Except, func(name string) bool { return strings.HasPrefix(class, name) }) {
			return step.Sequences, step.BatchTokens
		}
	}
	return 0, 0
}
