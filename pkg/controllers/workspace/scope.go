// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// scope is one pass over one Workspace: the facts, observed once, and what the steps decided.
type scope struct {
	ws    *v1beta1.Workspace
	owner capacity.Owner

	// Facts.
	revisions   []appsv1.ControllerRevision
	statefulSet *appsv1.StatefulSet
	machines    []capacity.Machine
	pods        []corev1.Pod
	nodes       []corev1.Node

	// revision is the accepted one: the plan and the rendered pods that everything follows.
	revision *revision
	// planErr says why there is no plan for the current spec.
	planErr *stalledError
	// attempt is the try to get machines that this pass began; nil where it began none.
	attempt *v1beta1.Attempt
	// capacityErr says why machines could not be asked for.
	capacityErr error
	// released says that nothing is left of the machines that a suspended Workspace held.
	released bool
	// finalized says that the Workspace is gone and there is nothing to report on.
	finalized bool
	// requeueAfter asks for another pass although nothing may happen.
	requeueAfter time.Duration
}

func newScope(ws *v1beta1.Workspace) *scope {
	return &scope{
		ws:    ws,
		owner: capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID},
	}
}

// isDeleting says whether the Workspace is on its way out.
func (s *scope) isDeleting() bool { return !s.ws.DeletionTimestamp.IsZero() }

// heldMachines are the machines that are not on their way out.
func (s *scope) heldMachines() []capacity.Machine {
	var held []capacity.Machine
	for _, machine := range s.machines {
		if !machine.Deleting {
			held = append(held, machine)
		}
	}
	return held
}

// hasLaunched says whether every machine of the plan has been launched.
func (s *scope) hasLaunched() bool {
	held := s.heldMachines()
	for _, machine := range held {
		if !machine.Launched {
			return false
		}
	}
	return s.revision != nil && len(held) == s.revision.Plan.Nodes
}
