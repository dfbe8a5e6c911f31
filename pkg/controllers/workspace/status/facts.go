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

// Facts are all that a status is computed from. Compute changes none of them.
type Facts struct {
	Workspace Workspace
	// Stored is the status that the API server has.
	Stored   *v1beta1.WorkspaceStatus
	Plan     Plan
	Attempts Attempts
	Machines Machines
	// Nodes are those that the plan names, in its order; empty if machines are acquired.
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
	// FetchesWeights reports whether the pods are ours, so that an init container fetches the weights.
	FetchesWeights bool
	// IsKAITOs reports whether KAITO's controller serves the Workspace.
	IsKAITOs bool
}

// Plan is the accepted plan.
type Plan struct {
	// Revision is the name of the revision that holds the plan; empty if there is none.
	Revision string
	// Plan is nil if there is none.
	Plan *planner.Plan
	// IsForSpec reports whether this pass decided what the current spec needs: the plan, or none.
	IsForSpec bool
	// Message is the plan in one line.
	Message string
	// Err says why the current spec has no plan; nil if it may have one.
	Err *progress.StalledError
}

// Attempts are the attempts to acquire machines.
type Attempts struct {
	// All of them after this pass, oldest first.
	All []v1beta1.Attempt
	// Open is the number of the attempt that is under way or has its machines; 0 if there is none.
	Open int32
	// Verdict is on the machines of the open attempt.
	Verdict refusal.Verdict
	// Err says why machines cannot be requested.
	Err error
}

// Machines are those of the Workspace.
type Machines struct {
	// Serving are those that match the accepted plan.
	Serving []capacity.Machine
	// NodeNames are the nodes of all machines that are not being deleted, in any order.
	NodeNames []string
	// Count includes those that are being deleted.
	Count int
	// Unheard says why a node that is not Ready has no consequence; empty if it has.
	Unheard string
}

// Node is an existing node that the plan names.
type Node struct {
	Name    string
	Exists  bool
	IsReady bool
	// GPUs that the node has for pods.
	GPUs int64
}

// Pods are the pods of the inference server and their StatefulSet.
type Pods struct {
	// HasSet reports whether the StatefulSet exists.
	HasSet bool
	// ArePlaced reports whether a pod has a node.
	ArePlaced bool
	// AreCurrent reports whether the pods are those of the StatefulSet as it should be.
	AreCurrent bool
	// Diagnosis says how the pods are, and Milestones when they came how far.
	Diagnosis  diagnosis.Finding
	Milestones diagnosis.Milestones
	// Replacement says that all members of a group are replaced; empty if they are not.
	Replacement string
	// RestartReason says why a group restarts; empty if it does not.
	RestartReason string
	// Rollback says how to return to the revision that answered last; empty if there is no other.
	Rollback string
}

// Endpoint is where the model answers.
type Endpoint struct {
	// HasService reports whether the Service exists and is the Workspace's own.
	HasService bool
	// Revision is the name of the revision that the pods run, and Models the names that it serves.
	Revision string
	Models   []string
	// ServesSpec reports whether the pods run what the spec asks for while other machines are acquired.
	ServesSpec bool
	// Meanwhile says which machines serve while others are acquired; empty if none do.
	Meanwhile string
	// Engine has the engine's own figures; nil if this pass did not probe the engine.
	Engine *Engine
}

// Engine is what a probe of the engine returned.
type Engine struct {
	// Revision is the name of the revision that the engine runs, and Plan its plan.
	Revision string
	Plan     *planner.Plan
	// KVCacheTokens of one replica, and WeightBytes of one replica of the model; 0 if the engine does not report them.
	KVCacheTokens, WeightBytes int64
	// Err says why the probe failed; nil if it did not.
	Err error
}

// Pass is what the pass did that is an event and no condition.
type Pass struct {
	// Created are the names of the machines that it requested.
	Created []string
	// FellBackFrom is the plan that it replaced with the next best; empty if it did not.
	FellBackFrom string
	// Recreates says why machines that serve are released before others are requested; empty if they are not.
	Recreates string
	// Exposed warns that pods can read the metadata of the requested machines; empty if they cannot.
	Exposed string
	// ReplacesGroup reports whether it replaces all members of a group.
	ReplacesGroup bool
}

// isOnNodes reports whether the plan uses existing nodes.
func (p *Plan) isOnNodes() bool { return p.Plan != nil && len(p.Plan.NodeNames) > 0 }
