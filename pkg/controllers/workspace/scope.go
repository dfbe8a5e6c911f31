// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
)

// scope is one pass over one Workspace: the observation, and the decisions of the steps.
type scope struct {
	ws    *v1beta1.Workspace
	owner capacity.Owner
	// spec is the Workspace to plan for: the current one, or the last accepted one if its spec has no plan.
	spec *v1beta1.Workspace
	// before is the status at the beginning of this pass.
	before v1beta1.WorkspaceStatus

	observation
	acceptance
	acquisition
	outcome
}

func newScope(ws *v1beta1.Workspace) *scope {
	return &scope{
		ws:    ws,
		owner: ownerOf(ws),
		spec:  ws,

		before:      *ws.Status.DeepCopy(),
		acquisition: acquisition{attempts: acquire.Attempts(ws.Status.Attempts).Clone()},
	}
}

func ownerOf(ws *v1beta1.Workspace) capacity.Owner {
	return capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID}
}

// isDeleting says whether the Workspace is on its way out.
func (s *scope) isDeleting() bool { return !s.ws.DeletionTimestamp.IsZero() }

// servingMachines returns the standing machines of the accepted plan's kind, except those of the serving attempt.
func (s *scope) servingMachines() acquire.Machines {
	if s.revision == nil {
		return nil
	}
	known := acquire.Snapshot{Accepted: planOf(s.revision), Attempts: s.attempts, Machines: s.machines, Surge: s.surge}
	return known.ServingMachines()
}

// hasMachines says whether every machine of the plan has been asked for, or is there already.
func (s *scope) hasMachines() bool {
	return s.isOnNodes() || s.revision != nil && len(s.servingMachines()) == s.revision.Plan.Nodes
}

// accepted returns the revision in use: the one in the status, else that of the pods, else the newest; nil if there
// is none.
func (s *scope) accepted() *revision {
	var names []string
	if s.ws.Status.Plan != nil {
		names = append(names, s.ws.Status.Plan.Revision)
	}
	if s.statefulSet != nil {
		names = append(names, s.statefulSet.Annotations[v1beta1.AnnotationRevision])
	}
	for _, name := range names {
		if out := s.revisions.Named(name); out != nil {
			return out
		}
	}
	return s.revisions.Newest()
}
