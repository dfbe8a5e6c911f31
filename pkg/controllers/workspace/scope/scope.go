// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scope holds one pass over one Workspace as values: the observed state, the accepted plan, its acquisition and
// the outcome. Its methods derive facts from these values. The package reads and writes nothing: the controller's steps
// do that.
package scope

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Scope is one pass over one Workspace: the observation, and the decisions of the steps.
type Scope struct {
	Workspace *v1beta1.Workspace
	Owner     capacity.Owner
	// Spec is the Workspace to plan for: the current one, or one with the last accepted inputs if the current spec has
	// no plan.
	Spec *v1beta1.Workspace
	// Limits are the administrator's limits for this pass; nil until a step needs them.
	Limits *purchase.Limits
	// Before is the status at the beginning of this pass.
	Before v1beta1.WorkspaceStatus

	Observation
	Acceptance
	Acquisition
	Outcome
}

// New returns the scope for a new pass.
func New(ws *v1beta1.Workspace) *Scope {
	return &Scope{
		Workspace: ws,
		Owner:     capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID},
		Spec:      ws,

		Before:      *ws.Status.DeepCopy(),
		Acquisition: Acquisition{Attempts: acquire.Attempts(ws.Status.Attempts).Clone()},
	}
}

// PlannedMachines returns the standing machines that match the accepted plan, except those of the serving attempt.
func (s *Scope) PlannedMachines() acquire.Machines {
	if s.Revision == nil {
		return nil
	}
	known := acquire.Snapshot{Accepted: PlanOf(s.Revision), Attempts: s.Attempts, Machines: s.Machines, Surge: s.Surge}
	return known.PlannedMachines()
}

// HasMachines reports whether every machine of the plan exists or has been requested.
func (s *Scope) HasMachines() bool {
	return s.IsOnNodes() || s.Revision != nil && len(s.PlannedMachines()) == s.Revision.Plan.Nodes
}

// Accepted returns the revision in use: the revision in the status, else the revision of the pods, else the newest; nil
// if there is none.
func (s *Scope) Accepted() *revision.Revision {
	var names []string
	if s.Workspace.Status.Plan != nil {
		names = append(names, s.Workspace.Status.Plan.Revision)
	}
	if s.StatefulSet != nil {
		names = append(names, s.StatefulSet.Annotations[v1beta1.AnnotationRevision])
	}
	for _, name := range names {
		if out := s.Revisions.Named(name); out != nil {
			return out
		}
	}
	return s.Revisions.Newest()
}
