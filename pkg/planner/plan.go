// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planner decides which machines serve a model: it decides what fits on which machine, ranks
// the options that fit, and explains every rejected one.
//
// It is pure: no clock, no network, no Kubernetes client. It must not know how machines are bought
// or how pods look. Renderers, admission, the CLI and the status use its Plan; nobody else computes
// memory.
package planner

import (
	"fmt"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// Request is what a plan is made for.
type Request struct {
	// Model to serve; nil for a Workspace with a pod template of its own, which needs machines only.
	Model *model.Model
	// Engine is the name of the engine that the user asked for; empty means the artifact's.
	Engine string
	// Adapters to serve beside the model.
	Adapters Adapters
	// Weights says what the model's files take of each machine's disk.
	Weights WeightsDisk
	// Objectives; zero values are unset.
	Objectives Objectives
	// Constraints on machines.
	Constraints Constraints
	// Template is set where Model is nil.
	Template *TemplateDemand
	// Nodes that are there. NodeSource says whether they are used and whether machines are bought; empty
	// means Any.
	Nodes      []Node
	NodeSource v1beta1.NodeSource
}

// WeightsDisk is how often a machine's disk holds the model's files.
type WeightsDisk int

const (
	// WeightsOnce is what files take that are fetched onto the disk.
	WeightsOnce WeightsDisk = iota
	// WeightsTwice is what an image takes, which containerd keeps packed and unpacked.
	WeightsTwice
	// WeightsElsewhere is for files on a volume.
	WeightsElsewhere
)

func (d WeightsDisk) copies() float64 {
	switch d {
	case WeightsTwice:
		return 2
	case WeightsElsewhere:
		return 0
	default:
		return 1
	}
}

// Objectives say what must fit and how fast it must be. Zero means unset.
type Objectives struct {
	// MaxModelLen in tokens per sequence.
	MaxModelLen int
	// Concurrency is the number of such sequences at once.
	Concurrency int
	// InputTokens and OutputTokens of a typical request, at which speed is judged.
	InputTokens, OutputTokens int
	// TimeToFirstToken and TimePerOutputToken are the slowest that will do, at that concurrency.
	TimeToFirstToken, TimePerOutputToken time.Duration
	// OptimizeFor ranks what fits and is fast enough; empty means Balanced.
	OptimizeFor v1beta1.OptimizeFor
}

// Constraints say which machines may be used.
type Constraints struct {
	// InstanceType is the one machine type that the user named; empty means any.
	InstanceType string
	// InstanceTypes, Accelerators and Zones are allowlists; empty means any.
	InstanceTypes []string
	Accelerators  []string
	Zones         []string
	// CapacityTypes allowed; empty means reserved and on-demand.
	CapacityTypes []v1beta1.CapacityType
	// Excluded offerings are not considered now, for example because the cloud has just refused them.
	Excluded []Exclusion
	// MaxHourlyPrice of all machines in USD; 0 means no limit.
	MaxHourlyPrice float64
	// Ceiling of somebody else's on that price. Unlike MaxHourlyPrice it says nothing about what the user
	// would like to spend.
	Ceiling Ceiling
	// OneMachine says in words why no model may be spread over several machines; empty where it may.
	OneMachine string
	// MaxNodes is an upper bound; 0 means none.
	MaxNodes int
	// AllowedQuantizations is consent to artifacts that are not native, AllowedKVCacheTypes to elements
	// of the KV cache that are not the model's own.
	AllowedQuantizations []string
	AllowedKVCacheTypes  []string
	// Engine settings that the user chose.
	Engine EngineSettings
	// GPUs asked for on each machine by partition mode accelerator; 0 means the planner's choice.
	GPUs int
}

// Ceiling is a limit on the price of all machines that others than the user set.
type Ceiling struct {
	// HourlyPrice in USD; 0 means none.
	HourlyPrice float64
	// Name of the limit, and Help to get past it, for messages.
	Name, Help string
}

// Exclusion rules a machine type out, or one way of paying for it.
type Exclusion struct {
	InstanceType string
	// CapacityType that is ruled out; empty means all.
	CapacityType v1beta1.CapacityType
	// Reason in words for whoever reads the verdict.
	Reason string
}

// EngineSettings are flags of an engine that the user set and that a plan depends on. Zero means unset.
// One that is illegal for the model is replaced by the nearest legal one, with a warning.
type EngineSettings struct {
	// MaxModelLen beats the objective.
	MaxModelLen          int
	MaxNumSeqs           int
	MaxBatchedTokens     int
	TensorParallel       int
	PipelineParallel     int
	DataParallel         int
	GPUMemoryUtilization float64
	// ContextParallel is over how many GPUs of a tensor-parallel group the tokens of the KV cache are spread.
	ContextParallel int
	// KVCacheType is consent too.
	KVCacheType string
	// DType that 16-bit weights are computed in, as the engine names it; empty or auto means the planner's choice.
	DType string
	Eager bool
	// TextOnly says that the engine is to read no images or videos.
	TextOnly bool
	// ExpertParallel spreads whole experts over GPUs, or does not; nil is the planner's choice.
	ExpertParallel *bool
	// AdapterSlots and AdapterRank are how many adapters the engine holds on the GPUs, and of what rank.
	AdapterSlots, AdapterRank int
}

// TemplateDemand is what the pod of a template Workspace asks for.
type TemplateDemand struct {
	// Nodes is the number of pods, one on each machine.
	Nodes int
	// GPUs that the template's containers request, summed.
	GPUs int
}

// VerifiedWeights are an artifact of a registry whose signature was verified.
type VerifiedWeights struct {
	// Reference by digest.
	Reference string `json:"reference"`
	// Demands is the fingerprint of what was demanded of its signatures: the administrator's keys, the Workspace's key or
	// identity, and the roots of trust.
	Demands string `json:"demands,omitempty"`
}

// Plan is the machines and the layout that serve a model. It is stored with the revision that was
// rendered from it, so its JSON form is stable.
type Plan struct {
	// InstanceType, Nodes and the resources on each of them. Where existing nodes are used, the type is
	// empty.
	InstanceType string `json:"instanceType"`
	Nodes        int    `json:"nodes"`
	// NodeNames are the existing nodes that are used; where there are any, nothing is bought.
	NodeNames []string `json:"nodeNames,omitempty"`
	// Accelerator is the GPU's name, GPUResource the resource that the device plugin announces, and
	// GPUsPerNode how many of the machine's GPUs the model uses.
	Accelerator string `json:"accelerator,omitempty"`
	GPUResource string `json:"gpuResource,omitempty"`
	GPUsPerNode int    `json:"gpusPerNode,omitempty"`
	// ComputeCapability of the GPUs, for example 8.0; empty where it is not known.
	ComputeCapability string `json:"computeCapability,omitempty"`
	// MachineGPUs is how many GPUs each machine has.
	MachineGPUs int `json:"machineGPUs,omitempty"`
	// CapacityType to buy (empty for existing nodes), and Zones it may come from (empty means any).
	CapacityType v1beta1.CapacityType `json:"capacityType"`
	Zones        []string             `json:"zones,omitempty"`
	// TensorParallel, PipelineParallel and DataParallel sizes.
	TensorParallel   int `json:"tensorParallel,omitempty"`
	PipelineParallel int `json:"pipelineParallel,omitempty"`
	DataParallel     int `json:"dataParallel,omitempty"`
	// ContextParallel is over how many GPUs of those that share a layer the KV cache's tokens are spread; 0 where
	// nobody asked.
	ContextParallel int `json:"contextParallel,omitempty"`
	// ExpertParallel spreads the experts of a mixture whole over the GPUs of all replicas of a stage, which step
	// together then.
	ExpertParallel bool `json:"expertParallel,omitempty"`
	// StageLayers is how many layers each stage of the pipeline has; empty where there is one stage, and
	// where the engine splits by layers itself.
	StageLayers []int `json:"stageLayers,omitempty"`
	// RDMA says that the machines are counted on to reach each other by it.
	RDMA bool `json:"rdma,omitempty"`
	// Engine that serves, and the artifact that it loads.
	Engine   string          `json:"engine,omitempty"`
	Artifact *model.Artifact `json:"artifact,omitempty"`
	// Weights take the place of the artifact's files; nil where nobody demands a signature of them.
	Weights *VerifiedWeights `json:"weights,omitempty"`
	// MaxModelLen in tokens and Concurrency in sequences of that length.
	MaxModelLen int `json:"maxModelLen,omitempty"`
	Concurrency int `json:"concurrency,omitempty"`
	// MaxNumSeqs that each replica works on at once, MaxBatchedTokens that it computes in one step, and
	// GPUMemoryUtilization, the share of a GPU's memory that it may use; 0 where the engine has no such
	// settings.
	MaxNumSeqs           int     `json:"maxNumSeqs,omitempty"`
	MaxBatchedTokens     int     `json:"maxBatchedTokens,omitempty"`
	GPUMemoryUtilization float64 `json:"gpuMemoryUtilization,omitempty"`
	// KVCacheType of the cache's elements; empty means the model's own.
	KVCacheType string `json:"kvCacheType,omitempty"`
	// AdapterSlots that the GPUs have memory for, and the highest AdapterRank; 0 without adapters.
	AdapterSlots int `json:"adapterSlots,omitempty"`
	AdapterRank  int `json:"adapterRank,omitempty"`
	// KVCacheTokens that the cache of one replica holds.
	KVCacheTokens int `json:"kvCacheTokens,omitempty"`
	// Memory budget of one GPU.
	Memory *Memory `json:"memory,omitempty"`
	// Performance that is to be expected.
	Performance *Performance `json:"performance,omitempty"`
	// DiskGiB is the ephemeral storage that weights and image need on each machine.
	DiskGiB int `json:"diskGiB,omitempty"`
	// CPUs and MemoryGiB are what the engine should request of each machine.
	CPUs      int `json:"cpus,omitempty"`
	MemoryGiB int `json:"memoryGiB,omitempty"`
	// HourlyPrice of all machines in USD; negative where no price is known.
	HourlyPrice float64 `json:"hourlyPrice"`
	// Premium says what more than the cheapest hour is paid, and for what; empty where the plan is the cheapest.
	Premium string `json:"premium,omitempty"`
	// Alternatives are what would have been chosen next, in order.
	Alternatives []Verdict `json:"alternatives,omitempty"`
	// Rejected are the options that do not work, by name.
	Rejected []Verdict `json:"rejected,omitempty"`
	// TurnedDown is how many more there are than Rejected lists.
	TurnedDown int `json:"turnedDown,omitempty"`
	// Warnings in sentences: what was asked for and replaced or ignored.
	Warnings []string `json:"warnings,omitempty"`
	// Advice in sentences: what would be cheaper with the user's consent.
	Advice []string `json:"advice,omitempty"`
}

// Abridged is the plan with the options that do not work counted in place of listed: they are most of what it has to
// say, and are found again by planning.
func (p *Plan) Abridged() Plan {
	out := *p
	out.Rejected, out.TurnedDown = nil, p.TurnedDown+len(p.Rejected)
	return out
}

// Performance is how fast a plan serves a load.
type Performance struct {
	// InputTokens, OutputTokens and Concurrency of the load.
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
	Concurrency  int `json:"concurrency"`
	// TTFTMillis and TPOTMillis are the mean time to the first token and per further token, in ms.
	TTFTMillis float64 `json:"ttftMillis"`
	TPOTMillis float64 `json:"tpotMillis"`
	// LongestTTFTMillis is the time to the first token of a prompt as long as sequences may be, if nothing else is
	// served, in ms; 0 for options that were not chosen.
	LongestTTFTMillis float64 `json:"longestTTFTMillis,omitempty"`
	// OutputTokensPerSecond of all replicas together.
	OutputTokensPerSecond float64 `json:"outputTokensPerSecond"`
	// PricePerMillion output tokens in USD at that load; negative where no price is known.
	PricePerMillion float64       `json:"pricePerMillion"`
	Basis           v1beta1.Basis `json:"basis"`
}

// Memory budget of one GPU, in GiB.
type Memory struct {
	Total    float64       `json:"total"`
	Weights  float64       `json:"weights"`
	KVCache  float64       `json:"kvCache"`
	Overhead float64       `json:"overhead"`
	Basis    v1beta1.Basis `json:"basis"`
}

// Free is what remains of the GPU's memory, in GiB.
func (m Memory) Free() float64 {
	return m.Total - m.Weights - m.KVCache - m.Overhead
}

// Verdict is one option that was considered and not chosen.
type Verdict struct {
	InstanceType string `json:"instanceType"`
	Nodes        int    `json:"nodes"`
	// NodeNames are the existing nodes that the verdict is about; empty for machines that would be bought.
	NodeNames []string `json:"nodeNames,omitempty"`
	// HourlyPrice of all machines in USD; negative where no price is known.
	HourlyPrice float64 `json:"hourlyPrice"`
	// Layout and performance of options that work.
	GPUsPerNode      int          `json:"gpusPerNode,omitempty"`
	TensorParallel   int          `json:"tensorParallel,omitempty"`
	PipelineParallel int          `json:"pipelineParallel,omitempty"`
	DataParallel     int          `json:"dataParallel,omitempty"`
	Performance      *Performance `json:"performance,omitempty"`
	// Reason in words that a person can act on, at most 256 characters.
	Reason string `json:"reason"`
}

// InfeasibleError says that no allowed machine serves the request.
type InfeasibleError struct {
	// Reason is one of the reasons of the condition Planned.
	Reason string
	// Message is a sentence with the numbers and the way out.
	Message string
	// Rejected is every option that was considered.
	Rejected []Verdict
}

// Error returns the message.
func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("%s: %s", e.Reason, e.Message)
}
