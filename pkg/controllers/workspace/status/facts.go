// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Facts are all inputs of a status. Compute changes none of them.
type Facts struct {
	Workspace Workspace
	// Stored is the status that the API server has.
	Stored   *v1beta1.WorkspaceStatus
	Plan     Plan
	Attempts Attempts
	Machines Machines
	// Nodes are the nodes of a plan for existing nodes, in its order; empty if machines are acquired.
	Nodes    []Node
	Pods     Pods
	Endpoint Endpoint
	Pass     Pass
}

// Workspace is the Workspace without its status.
type Workspace struct {
	Namespace, Name string
	Generation      int64
	CreationTime    metav1.Time
	IsDeleting      bool
	IsSuspended     bool
	// IsTuning reports whether the Workspace tunes a model.
	IsTuning bool
	// FetchesWeights reports whether the pods are rendered by us, with an init container that fetches the weights.
	FetchesWeights bool
	// IsKAITOs reports whether KAITO's controller serves the Workspace.
	IsKAITOs bool
	// HasKAITOsPods reports whether KAITO's pods still serve after an edit, until ours replace them.
	HasKAITOsPods bool
	// Frozen is set if the Workspace was taken over from KAITO's controller and runs on unchanged.
	Frozen *Frozen
}

// Plan is the accepted plan.
type Plan struct {
	// Revision is the name of the plan's revision; empty if there is none.
	Revision string
	// Plan is nil if there is none.
	Plan *planner.Plan
	// IsForSpec reports whether this pass decided about the current spec, with or without a plan.
	IsForSpec bool
	// Message is the summary of the plan in one line.
	Message string
	// Err explains why the current spec has no plan; nil if it has one, or if this pass did not decide.
	Err *progress.StalledError
}

// Attempts are the attempts to acquire machines.
type Attempts struct {
	// All are all attempts after this pass, oldest first.
	All []v1beta1.Attempt
	// Open is the number of the open attempt, whether or not it has its machines; 0 if there is none.
	Open int32
	// Verdict is the verdict on the machines of the open attempt.
	Verdict refusal.Verdict
	// Err explains why machines cannot be requested.
	Err error
}

// Machines are the machines of the Workspace.
type Machines struct {
	// Serving are the machines of the accepted plan.
	Serving []capacity.Machine
	// NodeNames are the nodes of all standing machines, in any order.
	NodeNames []string
	// Count is the number of machines, including those under deletion.
	Count int
	// Unheard explains why nodes that are not Ready do not count as lost; empty otherwise.
	Unheard string
}

// Node is an existing node of the plan.
type Node struct {
	Name    string
	Exists  bool
	IsReady bool
	// GPUs is the number of GPUs that pods can use.
	GPUs int64
	// Shortage describes GPUs of the node that no pod can use; empty if there are none.
	Shortage string
}

// Pods are the pods of the inference server and their StatefulSet.
type Pods struct {
	// HasSet reports whether the StatefulSet exists.
	HasSet bool
	// ArePlaced reports whether a pod has a node.
	ArePlaced bool
	// AreCurrent reports whether all pods match the desired StatefulSet.
	AreCurrent bool
	// Diagnosis is the state of the pods, and Milestones are the ends of their stages.
	Diagnosis  diagnosis.Finding
	Milestones diagnosis.Milestones
	// Replacement explains why all members of a group are replaced; empty if they are not.
	Replacement string
	// RestartReason explains why a group restarts; empty if it does not.
	RestartReason string
	// Rollback explains how to return to the last answering revision; empty if there is no other.
	Rollback string
}

// Endpoint is the address of the model.
type Endpoint struct {
	// HasService reports whether the Service exists and is the Workspace's own.
	HasService bool
	// IsReachable reports whether the Service sends requests to a ready pod. It does not count while the Workspace is
	// Ready.
	IsReachable bool
	// Revision is the name of the pods' revision, and Models are its served model names.
	Revision string
	Models   []string
	// AdapterSlots is how many adapters the engine can have without a restart; 0 if it does not change them. Adapters are
	// their states; nil keeps the stored ones.
	AdapterSlots int32
	Adapters     []v1beta1.AdapterStatus
	// ServesSpec reports whether the pods run the current spec while other machines are acquired.
	ServesSpec bool
	// Meanwhile describes the serving machines while others are acquired; empty if none serve.
	Meanwhile string
	// Engine has the engine's own figures; nil if this pass did not probe the engine.
	Engine *Engine
	// Speed is a new speed for the stored figures; nil if the stored speed stays.
	Speed *v1beta1.EngineSpeed
}

// Engine is the result of a probe of the engine.
type Engine struct {
	// Revision is the name of the engine's revision, and Plan its plan.
	Revision string
	Plan     *planner.Plan
	// KVCacheTokens and WeightBytes are figures of one replica of the model; 0 if the engine does not report them.
	KVCacheTokens, WeightBytes int64
	// Err explains why the probe failed; nil if it did not.
	Err error
}

// Pass has the actions of the pass that become events.
type Pass struct {
	// Created are the names of the requested machines.
	Created []string
	// FellBackFrom is the plan before a fallback in this pass; empty if there was no fallback.
	FellBackFrom string
	// Recreates is the reason to release serving machines before others are requested; empty if there is none.
	Recreates string
	// Exposed warns that pods can read the metadata of the requested machines; empty if they cannot.
	Exposed string
	// ReplacesGroup reports whether the pass replaces all members of a group.
	ReplacesGroup bool
}

// isOnNodes reports whether the plan uses existing nodes.
func (p *Plan) isOnNodes() bool { return p.Plan != nil && len(p.Plan.NodeNames) > 0 }
