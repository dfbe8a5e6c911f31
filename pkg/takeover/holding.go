// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Holding has the objects of KAITO's controller for a Workspace.
type Holding struct {
	// Set is the StatefulSet, or nil.
	Set *appsv1.StatefulSet
	// Objects has the names of all objects; empty if there are none.
	Objects []string
	// Members are the pods of the set if it will be replaced.
	Members []corev1.Pod
	// State is the state of the user's consent, and Pods the state of the pods.
	State State
	Pods  Pods
}

// Pods has the number of ready pods and of wanted pods.
type Pods struct{ Ready, Wanted int }

// Answer reports whether all wanted pods are ready.
func (p Pods) Answer() bool { return p.Ready >= p.Wanted }

// IsKept reports whether all objects stay as they are.
func (h *Holding) IsKept() bool { return len(h.Objects) > 0 && h.State != Edited }

// IsFrozen reports whether all objects stay as they are after a takeover.
func (h *Holding) IsFrozen() bool { return len(h.Objects) > 0 && h.State == Frozen }

// IsReplaced reports whether this controller replaces the pods.
func (h *Holding) IsReplaced() bool { return h.Set != nil && h.State == Edited }

// Describe returns the state of the pods, their machines, and the next step.
func (h *Holding) Describe() string {
	return fmt.Sprintf("%d of %d pods that KAITO's controller made are ready. Unchanged until you edit resource or inference: %s. "+
		"After an edit, Modelberth makes a plan, acquires new machines, and replaces the pods", h.Pods.Ready, h.Pods.Wanted, strings.Join(h.Objects, ", "))
}
