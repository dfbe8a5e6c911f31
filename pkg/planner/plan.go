// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planner decides which machines serve a model. It computes whether the model fits each machine type, ranks the
// options, and explains every rejected one.
//
// It is pure: no clock, no network, no Kubernetes client. It must not know how machines are bought or how pods look.
// Renderers, admission, the CLI and the status use its Plan; no other package computes memory.
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
	// Model to serve; nil for a Workspace with its own pod template, which needs only machines.
	Model *model.Model
	// Engine is the user's engine; empty means the first available engine of the model's artifacts.
	Engine string
	// Adapters to serve with the model.
	Adapters Adapters
	// Weights counts the copies of the model's files on each machine's disk.
	Weights WeightsDisk
	// Starts are measurements of the namespace's own engines that run the model. They add to the catalogue's.
	Starts []catalog.Measurement
	// Objectives of the user; zero values are unset.
	Objectives Objectives
	// Constraints on machines.
	Constraints Constraints
	// Template is set if Model is nil.
	Template *TemplateDemand
	// Nodes are the existing nodes. NodeSource says whether to use them, to buy machines, or both; empty means Any.
	Nodes      []Node
	NodeSource v1beta1.NodeSource
}

// WeightsDisk counts the copies of the model on a machine's disk.
type WeightsDisk int

const (
	// WeightsOnce is for files that are fetched to the disk.
	WeightsOnce WeightsDisk = iota
	// WeightsTwice is for weights in an image: containerd keeps it packed and unpacked.
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

// Objectives are the load to hold and the longest acceptable times. Zero means unset.
type Objectives struct {
	// MaxModelLen in tokens per sequence.
	MaxModelLen int
	// Concurrency is the number of sequences of that length at once.
	Concurrency int
	// RequestsPerSecond arrive at random times. If set, the speed is predicted for this rate, not for Concurrency.
	RequestsPerSecond float64
	// InputTokens and OutputTokens of a typical request, for predicting the speed.
	InputTokens, OutputTokens int
	// TimeToFirstToken and TimePerOutputToken are the longest acceptable times under that load.
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
	// CapacityTypes allowed; empty means on demand, and reserved for machines with a reservation.
	CapacityTypes []v1beta1.CapacityType
	// Excluded are machine types to leave out for now, for example because the cloud has just refused them.
	Excluded []Exclusion
	// MaxHourlyPrice of all machines in USD; 0 means no limit.
	MaxHourlyPrice float64
	// Ceiling is an administrator's limit on the same price.
	Ceiling Ceiling
	// OneMachine is the reason why no model may spread over several machines; empty if it may.
	OneMachine string
	// MaxNodes is an upper bound; 0 means none.
	MaxNodes int
	// AllowedQuantizations are formats other than the published precision that the user accepts. AllowedKVCacheTypes
	// are the types of KV cache other than the model's own.
	AllowedQuantizations []string
	AllowedKVCacheTypes  []string
	// Engine settings of the user.
	Engine EngineSettings
	// GPUs is the number on each machine, from partition mode accelerator; 0 means the planner's choice.
	GPUs int
	// Slice is the MIG profile from partition mode mig, such as 1g.10gb; empty means the planner's choice.
	Slice string
}

// Ceiling is a limit on the price of all machines that the administrator sets, not the user.
type Ceiling struct {
	// HourlyPrice in USD; 0 means no limit.
	HourlyPrice float64
	// Name of the limit, and Help says how to get past it; both are for messages.
	Name, Help string
}

// Exclusion excludes a machine type, or one capacity type of it.
type Exclusion struct {
	InstanceType string
	// CapacityType to exclude; empty means all.
	CapacityType v1beta1.CapacityType
	// Reason for the verdict.
	Reason string
}

// EngineSettings are the user's engine flags with an effect on the plan. Zero means unset. The planner replaces an
// illegal setting by the nearest legal one, with a warning.
type EngineSettings struct {
	// MaxModelLen takes precedence over the objective.
	MaxModelLen          int
	MaxNumSeqs           int
	MaxBatchedTokens     int
	TensorParallel       int
	PipelineParallel     int
	DataParallel         int
	GPUMemoryUtilization float64
	// ContextParallel is the number of GPUs of a tensor-parallel group that share the tokens of the KV cache.
	ContextParallel int
	// KVCacheType also counts as consent to that type.
	KVCacheType string
	// DType of 16-bit weights, as the engine names it; empty or auto means the planner's choice.
	DType string
	Eager bool
	// Media are the limits of the images and videos in a request.
	Media physics.Media
	// ExpertParallel says whether whole experts spread over GPUs; nil means the planner's choice.
	ExpertParallel *bool
	// AdapterSlots is the number of adapters on the GPUs, AdapterRank their highest rank.
	AdapterSlots, AdapterRank int
}

// TemplateDemand is what the pod template of a Workspace requests.
type TemplateDemand struct {
	// Nodes is the number of pods, one on each machine.
	Nodes int
	// GPUs is the sum of the template's requests.
	GPUs int
}

// VerifiedWeights is an artifact in a registry with a verified signature.
type VerifiedWeights struct {
	// Reference names the artifact by digest.
	Reference string `json:"reference"`
	// Demands is the fingerprint of the signatures' requirements: the administrator's keys, the Workspace's key or
	// identity, and the roots of trust.
	Demands string `json:"demands,omitempty"`
}

// Plan has the machines and the layout of a model. It is stored with its rendered revision, so its JSON form is stable.
type Plan struct {
	// InstanceType and Nodes are the machine type and the number of machines. InstanceType is empty for existing nodes.
	InstanceType string `json:"instanceType"`
	Nodes        int    `json:"nodes"`
	// NodeNames are the existing nodes of the plan. If there are any, the plan buys nothing.
	NodeNames []string `json:"nodeNames,omitempty"`
	// Accelerator is the GPU's class, GPUResource the device plugin's resource, and GPUsPerNode the number of GPUs in
	// use on each machine.
	Accelerator string `json:"accelerator,omitempty"`
	GPUResource string `json:"gpuResource,omitempty"`
	GPUsPerNode int    `json:"gpusPerNode,omitempty"`
	// ComputeCapability of the GPUs, for example 8.0; empty if unknown.
	ComputeCapability string `json:"computeCapability,omitempty"`
	// MachineGPUs is the number of GPUs of each machine.
	MachineGPUs int `json:"machineGPUs,omitempty"`
	// CapacityType to buy, empty for existing nodes. Zones are the allowed zones; empty means any.
	CapacityType v1beta1.CapacityType `json:"capacityType"`
	Zones        []string             `json:"zones,omitempty"`
	// TensorParallel, PipelineParallel and DataParallel sizes.
	TensorParallel   int `json:"tensorParallel,omitempty"`
	PipelineParallel int `json:"pipelineParallel,omitempty"`
	DataParallel     int `json:"dataParallel,omitempty"`
	// ContextParallel is the number of GPUs of a tensor-parallel group that share the KV cache's tokens; 0 if the user
	// did not set it.
	ContextParallel int `json:"contextParallel,omitempty"`
	// ExpertParallel spreads whole experts over the GPUs of all replicas of a stage. The replicas then compute every
	// step together.
	ExpertParallel bool `json:"expertParallel,omitempty"`
	// StageLayers is the number of layers of each pipeline stage; empty for one stage, and for engines that divide the
	// layers themselves.
	StageLayers []int `json:"stageLayers,omitempty"`
	// RDMA: the plan relies on RDMA between the machines.
	RDMA bool `json:"rdma,omitempty"`
	// Engine and its artifact.
	Engine   string          `json:"engine,omitempty"`
	Artifact *model.Artifact `json:"artifact,omitempty"`
	// Weights replace the artifact's files; nil if nobody requires signatures.
	Weights *VerifiedWeights `json:"weights,omitempty"`
	// MaxModelLen is in tokens; Concurrency is the number of sequences of that length.
	MaxModelLen int `json:"maxModelLen,omitempty"`
	Concurrency int `json:"concurrency,omitempty"`
	// MaxNumSeqs is the limit of sequences at once in each replica, MaxBatchedTokens the limit of tokens in one step,
	// and GPUMemoryUtilization the engine's share of a GPU's memory; 0 for engines without such settings.
	MaxNumSeqs           int     `json:"maxNumSeqs,omitempty"`
	MaxBatchedTokens     int     `json:"maxBatchedTokens,omitempty"`
	GPUMemoryUtilization float64 `json:"gpuMemoryUtilization,omitempty"`
	// KVCacheType is the data type of the KV cache; empty means the model's own.
	KVCacheType string `json:"kvCacheType,omitempty"`
	// AdapterSlots is the number of adapters on the GPUs, AdapterRank their highest rank; 0 without adapters.
	AdapterSlots int `json:"adapterSlots,omitempty"`
	AdapterRank  int `json:"adapterRank,omitempty"`
	// KVCacheTokens is the capacity of one replica's KV cache in tokens.
	KVCacheTokens int `json:"kvCacheTokens,omitempty"`
	// Memory budget of one GPU.
	Memory *Memory `json:"memory,omitempty"`
	// Performance is a prediction; nil if the speed is unknown.
	Performance *Performance `json:"performance,omitempty"`
	// DiskGiB is the ephemeral storage for weights and image on each machine.
	DiskGiB int `json:"diskGiB,omitempty"`
	// CPUs and MemoryGiB are the pod's requests on each machine.
	CPUs      int `json:"cpus,omitempty"`
	MemoryGiB int `json:"memoryGiB,omitempty"`
	// HourlyPrice of all machines in USD; negative where no price is known.
	HourlyPrice float64 `json:"hourlyPrice"`
	// Premium describes the surcharge over the cheapest hour, and its benefit; empty for the cheapest plan.
	Premium string `json:"premium,omitempty"`
	// Alternatives are the next best options, best first.
	Alternatives []Verdict `json:"alternatives,omitempty"`
	// Rejected are the other options, sorted by name.
	Rejected []Verdict `json:"rejected,omitempty"`
	// TurnedDown is the number of options that were dropped from the lists.
	TurnedDown int `json:"turnedDown,omitempty"`
	// Warnings are sentences about replaced or ignored requests.
	Warnings []string `json:"warnings,omitempty"`
	// Advice has sentences about savings that need the user's consent.
	Advice []string `json:"advice,omitempty"`
}

// Abridged returns the plan with the number of its Rejected options in place of the list. The list is the largest part
// of a plan, and planning again restores it.
func (p *Plan) Abridged() Plan {
	out := *p
	out.Rejected, out.TurnedDown = nil, p.TurnedDown+len(p.Rejected)
	return out
}

// Performance is the speed of a plan under a load.
type Performance struct {
	// InputTokens, OutputTokens and Concurrency of the load.
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
	Concurrency  int `json:"concurrency"`
	// RequestsPerSecond of the load if the user set a rate. Concurrency is then the mean number of requests in flight.
	RequestsPerSecond float64 `json:"requestsPerSecond,omitempty"`
	// TTFTMillis and TPOTMillis are the mean time to first token and time per output token, in ms.
	TTFTMillis float64 `json:"ttftMillis"`
	TPOTMillis float64 `json:"tpotMillis"`
	// LongestTTFTMillis is the time to first token in ms of the longest possible prompt without other load; 0 for
	// options other than the plan.
	LongestTTFTMillis float64 `json:"longestTTFTMillis,omitempty"`
	// OutputTokensPerSecond is the sum over all replicas.
	OutputTokensPerSecond float64 `json:"outputTokensPerSecond"`
	// PricePerMillion output tokens in USD at that load; negative if no price is known.
	PricePerMillion float64 `json:"pricePerMillion"`
	// Slowdown is the factor by which the namespace's own engines raised the predicted time per token; 0 if they did
	// not.
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

// Verdict is one option other than the plan's.
type Verdict struct {
	InstanceType string `json:"instanceType"`
	Nodes        int    `json:"nodes"`
	// NodeNames are the existing nodes of the option; empty for machines to buy.
	NodeNames []string `json:"nodeNames,omitempty"`
	// HourlyPrice of all machines in USD; negative where no price is known.
	HourlyPrice float64 `json:"hourlyPrice"`
	// The layout and the performance of a suitable option.
	GPUsPerNode      int          `json:"gpusPerNode,omitempty"`
	TensorParallel   int          `json:"tensorParallel,omitempty"`
	PipelineParallel int          `json:"pipelineParallel,omitempty"`
	DataParallel     int          `json:"dataParallel,omitempty"`
	Performance      *Performance `json:"performance,omitempty"`
	// Reason is at most 256 characters and includes the remedy if there is one.
	Reason string `json:"reason"`
}

// InfeasibleError means that no allowed machine can serve the request.
type InfeasibleError struct {
	// Reason is one of the reasons of the condition Planned.
	Reason string
	// Message has the numbers and the remedy.
	Message string
	// Rejected has a verdict on every option.
	Rejected []Verdict
}

// Error returns the message.
func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("%s: %s", e.Reason, e.Message)
}
