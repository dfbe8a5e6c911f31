// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Acceptance holds the accepted plan, and the revision for the pods.
type Acceptance struct {
	// IsPlanned reports whether this pass has decided on the current spec, with or without a plan.
	IsPlanned bool
	// PlanErr explains why the current spec has no plan.
	PlanErr *progress.StalledError
	// WhyReplaced explains why the running pods cannot take the changed adapters; empty if they can, or nothing changed.
	WhyReplaced string
	// Inputs are the inputs of the accepted plan.
	Inputs render.Inputs
	// Revision is the accepted revision: the plan and the rendered pods.
	Revision *revision.Revision
	// Previous is the revision of the pods while the machines of the accepted one are acquired; nil otherwise.
	Previous *revision.Revision
	// PinnedTo is the only attempt whose machines the pods may use; 0 allows all machines of the Workspace.
	PinnedTo int32
}

// Running returns the revision that the pods run now.
func (a *Acceptance) Running() *revision.Revision {
	if a.Previous != nil {
		return a.Previous
	}
	return a.Revision
}

// IsGroup reports whether several machines serve the model together.
func (a *Acceptance) IsGroup() bool { return a.Running().IsGroup() }

// IsOnNodes reports whether the accepted plan uses existing nodes, so that nothing is bought.
func (a *Acceptance) IsOnNodes() bool { return a.Revision != nil && a.Revision.IsOnNodes() }
