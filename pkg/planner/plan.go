// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planner decides which machines serve a model: it computes the fit of each machine type, ranks the options,
// and explains every rejected one.
//
// It is pure: no clock, no network, no Kubernetes client. It must not know how machines are bought or how pods look.
// Renderers, admission, the CLI and the status use its Plan; nobody else computes memory.
package planner

import (
	"fmt"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
)

// Request is the input of a plan.
type Request struct {
	// Model to serve; nil for a Workspace with its own pod template, which needs machines only.
	Model *model.Model
	// Engine is the user's engine; empty means the artifact's.
	Engine string
	// Adapters to serve with the model.
	Adapters Adapters
	// Weights is the disk use of the model's files on each machine.
	Weights WeightsDisk
	// Starts have the memory of engines that run the model. They count in addition to the catalogue's.
	Starts []catalog.Measurement
	// Objectives; zero values are unset.
	Objectives Objectives
	// Constraints on machines.
	Constraints Constraints
	// Template is set if Model is nil.
	Template *TemplateDemand
	// Nodes are existing ones. NodeSource allows their use and purchases; empty means Any.
	Nodes      []Node
	NodeSource v1beta1.NodeSource
}

// WeightsDisk counts the copies of the model on a machine's disk.
type WeightsDisk int

const (
	// WeightsOnce is the disk of fetched files.
	WeightsOnce WeightsDisk = iota
	// WeightsTwice is the disk of an image: containerd keeps it packed and unpacked.
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

// Objectives are the target and the floors. Zero means unset.
type Objectives struct {
	// MaxModelLen in tokens per sequence.
	MaxModelLen int
	// Concurrency is the number of such sequences at once.
	Concurrency int
	// RequestsPerSecond arrive at random. The speed is judged under them, in place of Concurrency.
	RequestsPerSecond float64
	// InputTokens and OutputTokens of a typical request, for the speed.
	InputTokens, OutputTokens int
	// TimeToFirstToken and TimePerOutputToken are the slowest acceptable times, at that concurrency.
	TimeToFirstToken, TimePerOutputToken time.Duration
	// OptimizeFor ranks the options that are fast enough; empty means Balanced.
	OptimizeFor v1beta1.OptimizeFor
}

// Constraints limit the machines.
type Constraints struct {
	// InstanceType is the user's machine type; empty means any.
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
	// Ceiling of others on that price. Unlike MaxHourlyPrice it is no wish of the user.
	Ceiling Ceiling
	// OneMachine is the reason for which no model may spread over several machines; empty otherwise.
	OneMachine string
	// MaxNodes is an upper bound; 0 means none.
	MaxNodes int
	// AllowedQuantizations is consent to artifacts that are not native, AllowedKVCacheTypes to other elements of the
	// KV cache than the model's.
	AllowedQuantizations []string
	AllowedKVCacheTypes  []string
	// Engine settings of the user.
	Engine EngineSettings
	// GPUs asked for on each machine by partition mode accelerator; 0 means the planner's choice.
	GPUs int
	// Slice is the MIG profile asked for by partition mode mig, such as 1g.10gb; empty means the planner's choice.
	Slice string
}

// Ceiling is a limit of others than the user on the price of all machines.
type Ceiling struct {
	// HourlyPrice in USD; 0 means none.
	HourlyPrice float64
	// Name of the limit, and Help to get past it, for messages.
	Name, Help string
}

// Exclusion rules a machine type out, or one way of paying for it.
type Exclusion struct {
	InstanceType string
	// CapacityType of the exclusion; empty means all.
	CapacityType v1beta1.CapacityType
	// Reason for the reader of the verdict.
	Reason string
}

// EngineSettings are flags of the user with an effect on the plan. Zero means unset. The nearest legal setting
// replaces an illegal one, with a warning.
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
	// DType of 16-bit weights, by the engine's name; empty or auto means the planner's choice.
	DType string
	Eager bool
	// Media are the images and videos that the engine reads.
	Media physics.Media
	// ExpertParallel is whether whole experts spread over GPUs; nil is the planner's choice.
	ExpertParallel *bool
	// AdapterSlots and AdapterRank are the number and rank of adapters on the GPUs.
	AdapterSlots, AdapterRank int
}

// TemplateDemand holds the requests of a template Workspace's pod.
type TemplateDemand struct {
	// Nodes is the number of pods, one on each machine.
	Nodes int
	// GPUs in the template's requests, summed.
	GPUs int
}

// VerifiedWeights are a registry's artifact with a verified signature.
type VerifiedWeights struct {
	// Reference by digest.
	Reference string `json:"reference"`
	// Demands is the fingerprint of the demands on its signatures: the administrator's keys, the Workspace's key or
	// identity, and the roots of trust.
	Demands string `json:"demands,omitempty"`
}

// Plan is the machines and the layout of a model. It is stored with its rendered revision, so its JSON form is
// stable.
type Plan struct {
	// InstanceType, Nodes and the resources on each of them. With existing nodes the type is empty.
	InstanceType string `json:"instanceType"`
	Nodes        int    `json:"nodes"`
	// NodeNames are the existing nodes of the plan; with any, nothing is bought.
	NodeNames []string `json:"nodeNames,omitempty"`
	// Accelerator is the GPU's name, GPUResource the device plugin's resource, and GPUsPerNode the number of GPUs in
	// use on each machine.
	Accelerator string `json:"accelerator,omitempty"`
	GPUResource string `json:"gpuResource,omitempty"`
	GPUsPerNode int    `json:"gpusPerNode,omitempty"`
	// ComputeCapability of the GPUs, for example 8.0; empty if unknown.
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
	// StageLayers is the number of layers of each pipeline stage; empty for one stage, and for engines that split by
	// layers themselves.
	StageLayers []int `json:"stageLayers,omitempty"`
	// RDMA: the plan relies on it between the machines.
	RDMA bool `json:"rdma,omitempty"`
	// Engine and its artifact.
	Engine   string          `json:"engine,omitempty"`
	Artifact *model.Artifact `json:"artifact,omitempty"`
	// Weights replace the artifact's files; nil without a demand for signatures.
	Weights *VerifiedWeights `json:"weights,omitempty"`
	// MaxModelLen in tokens and Concurrency in sequences of that length.
	MaxModelLen int `json:"maxModelLen,omitempty"`
	Concurrency int `json:"concurrency,omitempty"`
	// MaxNumSeqs at once in each replica, MaxBatchedTokens of one step, and GPUMemoryUtilization, the engine's share
	// of a GPU's memory; 0 for engines without such settings.
	MaxNumSeqs           int     `json:"maxNumSeqs,omitempty"`
	MaxBatchedTokens     int     `json:"maxBatchedTokens,omitempty"`
	GPUMemoryUtilization float64 `json:"gpuMemoryUtilization,omitempty"`
	// KVCacheType of the cache's elements; empty means the model's own.
	KVCacheType string `json:"kvCacheType,omitempty"`
	// AdapterSlots on the GPUs, and the highest AdapterRank; 0 without adapters.
	AdapterSlots int `json:"adapterSlots,omitempty"`
	AdapterRank  int `json:"adapterRank,omitempty"`
	// KVCacheTokens in the cache of one replica.
	KVCacheTokens int `json:"kvCacheTokens,omitempty"`
	// Memory budget of one GPU.
	Memory *Memory `json:"memory,omitempty"`
	// Performance as predicted.
	Performance *Performance `json:"performance,omitempty"`
	// DiskGiB is the ephemeral storage for weights and image on each machine.
	DiskGiB int `json:"diskGiB,omitempty"`
	// CPUs and MemoryGiB are the engine's requests on each machine.
	CPUs      int `json:"cpus,omitempty"`
	MemoryGiB int `json:"memoryGiB,omitempty"`
	// HourlyPrice of all machines in USD; negative where no price is known.
	HourlyPrice float64 `json:"hourlyPrice"`
	// Premium describes the surcharge over the cheapest hour, and its benefit; empty for the cheapest plan.
	Premium string `json:"premium,omitempty"`
	// Alternatives are the next best options, in order.
	Alternatives []Verdict `json:"alternatives,omitempty"`
	// Rejected are the unsuitable options, by name.
	Rejected []Verdict `json:"rejected,omitempty"`
	// TurnedDown is how many more there are than Rejected lists.
	TurnedDown int `json:"turnedDown,omitempty"`
	// Warnings about replaced or ignored requests, in sentences.
	Warnings []string `json:"warnings,omitempty"`
	// Advice about savings with the user's consent, in sentences.
	Advice []string `json:"advice,omitempty"`
}

// Abridged returns the plan with a count of the unsuitable options in place of the list: they are its largest part,
// and another planning run finds them again.
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
	// RequestsPerSecond of the load if the user set them; Concurrency is then the mean number in flight.
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"`
	// TTFTMillis and TPOTMillis are the mean time to the first token and per further token, in ms.
	TTFTMillis float64 `json:"ttftMillis"`
	TPOTMillis float64 `json:"tpotMillis"`
	// LongestTTFTMillis is the time to first token of the longest possible prompt without other load, in ms; 0 for
	// options that were not chosen.
	LongestTTFTMillis float64 `json:"longestTTFTMillis,omitempty"`
	// OutputTokensPerSecond of all replicas together.
	OutputTokensPerSecond float64 `json:"outputTokensPerSecond"`
	// PricePerMillion output tokens in USD at that load; negative if no price is known.
	PricePerMillion float64 `json:"pricePerMillion"`
	// Slowdown is how many times longer a token takes by engines of the namespace than without them; 0 where they
	// changed nothing.
	Slowdown float64       `json:"slowdown,omitempty"`
	Basis    v1beta1.Basis `json:"basis"`
}

// Memory budget of one GPU, in GiB.
type Memory struct {
	Total    float64       `json:"total"`
	Weights  float64       `json:"weights"`
	KVCache  float64       `json:"kvCache"`
	Overhead float64       `json:"overhead"`
	Basis    v1beta1.Basis `json:"basis"`
}

// Free returns the rest of the GPU's memory, in GiB.
func (m Memory) Free() float64 {
	return m.Total - m.Weights - m.KVCache - m.Overhead
}

// Verdict is one option that was considered and not chosen.
type Verdict struct {
	InstanceType string `json:"instanceType"`
	Nodes        int    `json:"nodes"`
	// NodeNames are the existing nodes of the verdict; empty for machines to buy.
	NodeNames []string `json:"nodeNames,omitempty"`
	// HourlyPrice of all machines in USD; negative where no price is known.
	HourlyPrice float64 `json:"hourlyPrice"`
	// Layout and performance of suitable options.
	GPUsPerNode      int          `json:"gpusPerNode,omitempty"`
	TensorParallel   int          `json:"tensorParallel,omitempty"`
	PipelineParallel int          `json:"pipelineParallel,omitempty"`
	DataParallel     int          `json:"dataParallel,omitempty"`
	Performance      *Performance `json:"performance,omitempty"`
	// Reason with the remedy, at most 256 characters.
	Reason string `json:"reason"`
}

// InfeasibleError means that no allowed machine serves the request.
type InfeasibleError struct {
	// Reason is one of the reasons of the condition Planned.
	Reason string
	// Message is a sentence with the numbers and the remedy.
	Message string
	// Rejected is every considered option.
	Rejected []Verdict
}

// Error returns the message.
func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("%s: %s", e.Reason, e.Message)
}
