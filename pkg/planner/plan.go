// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planner decides which machines serve a model: it owns the physics (what fits where) and
// the ranking (which of what fits is cheapest), and explains every option that it turned down.
//
// It is pure: no clock, no network, no Kubernetes client. It must not know how machines are bought
// or how pods look. Renderers, admission, the CLI and the status use its Plan; nobody else computes
// memory.
package planner

import (
	"fmt"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// Request is what a plan is made for.
type Request struct {
	// Model to serve; nil for a Workspace with a pod template of its own, which needs machines only.
	Model *model.Model
	// Engine is the name of the engine that the user asked for; empty means the artifact's.
	Engine string
	// Objectives; zero values are unset.
	Objectives Objectives
	// Constraints on machines.
	Constraints Constraints
	// Template is set where Model is nil.
	Template *TemplateDemand
}

// Objectives say what must fit. Zero means unset.
type Objectives struct {
	// MaxModelLen in tokens per sequence.
	MaxModelLen int
	// Concurrency is the number of such sequences at once.
	Concurrency int
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
	// MaxHourlyPrice of all machines in USD; 0 means no limit.
	MaxHourlyPrice float64
	// MaxNodes is an upper bound; 0 means none.
	MaxNodes int
	// AllowedQuantizations is consent to artifacts that are not native.
	AllowedQuantizations []string
	// GPUs asked for on each machine by partition mode accelerator; 0 means the planner's choice.
	GPUs int
}

// TemplateDemand is what the pod of a template Workspace asks for.
type TemplateDemand struct {
	// Nodes is the number of pods, one on each machine.
	Nodes int
	// GPUs that the template's containers request, summed.
	GPUs int
}

// Plan is the machines and the layout that serve a model. It is stored with the revision that was
// rendered from it, so its JSON form is stable.
type Plan struct {
	// InstanceType, Nodes and the resources on each of them.
	InstanceType string `json:"instanceType"`
	Nodes        int    `json:"nodes"`
	// Accelerator is the GPU's name, GPUResource the resource that the device plugin announces, and
	// GPUsPerNode how many of the machine's GPUs the model uses.
	Accelerator string `json:"accelerator,omitempty"`
	GPUResource string `json:"gpuResource,omitempty"`
	GPUsPerNode int    `json:"gpusPerNode,omitempty"`
	// MachineGPUs is how many GPUs each machine has.
	MachineGPUs int `json:"machineGPUs,omitempty"`
	// CapacityType to buy, and Zones it may come from (empty means any).
	CapacityType v1beta1.CapacityType `json:"capacityType"`
	Zones        []string             `json:"zones,omitempty"`
	// TensorParallel, PipelineParallel and DataParallel sizes.
	TensorParallel   int `json:"tensorParallel,omitempty"`
	PipelineParallel int `json:"pipelineParallel,omitempty"`
	DataParallel     int `json:"dataParallel,omitempty"`
	// Engine that serves, and the artifact that it loads.
	Engine   string          `json:"engine,omitempty"`
	Artifact *model.Artifact `json:"artifact,omitempty"`
	// MaxModelLen in tokens and Concurrency in sequences of that length.
	MaxModelLen int `json:"maxModelLen,omitempty"`
	Concurrency int `json:"concurrency,omitempty"`
	// Memory budget of one GPU.
	Memory *Memory `json:"memory,omitempty"`
	// DiskGiB is the ephemeral storage that weights and image need on each machine.
	DiskGiB int `json:"diskGiB,omitempty"`
	// CPUs and MemoryGiB are what the engine should request of each machine.
	CPUs      int `json:"cpus,omitempty"`
	MemoryGiB int `json:"memoryGiB,omitempty"`
	// HourlyPrice of all machines in USD; negative where no price is known.
	HourlyPrice float64 `json:"hourlyPrice"`
	// Alternatives are what would have been chosen next, in order.
	Alternatives []Verdict `json:"alternatives,omitempty"`
	// Rejected are the options that do not work, by name.
	Rejected []Verdict `json:"rejected,omitempty"`
	// Warnings in sentences: what was asked for and replaced or ignored.
	Warnings []string `json:"warnings,omitempty"`
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
	// HourlyPrice of all machines in USD; negative where no price is known.
	HourlyPrice float64 `json:"hourlyPrice"`
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
