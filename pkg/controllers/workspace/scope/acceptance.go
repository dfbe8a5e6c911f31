// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Acceptance is the accepted outcome of the spec for the pods.
type Acceptance struct {
	// IsPlanned: the current spec has been decided on, with a plan or without one.
	IsPlanned bool
	// PlanErr is why there is no plan for the current spec.
	PlanErr *progress.StalledError
	// Inputs of the accepted plan.
	Inputs render.Inputs
	// Revision is the accepted one: the plan and the rendered pods.
	Revision *revision.Revision
	// Previous is the revision of the pods while the machines of the accepted one are acquired; nil otherwise.
	Previous *revision.Revision
	// PinnedTo is the attempt whose machines alone the pods may use; 0 allows all of the Workspace's.
	PinnedTo int32
}

// Running returns the revision for the pods now.
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
