// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
)

// acceptance is the accepted outcome of the spec for the pods.
type acceptance struct {
	// planned: the current spec has been decided on, with a plan or without one.
	planned bool
	// planErr says why there is no plan for the current spec.
	planErr *progress.StalledError
	// inputs of the accepted plan.
	inputs render.Inputs
	// revision is the accepted one: the plan and the rendered pods.
	revision *revision
	// former is the revision of the pods while the machines of the accepted one are acquired; nil otherwise.
	former *revision
	// runsOn is the attempt whose machines alone the pods may use; 0 allows all of the Workspace's.
	runsOn int32
}

// running returns the revision for the pods now.
func (a *acceptance) running() *revision {
	if a.former != nil {
		return a.former
	}
	return a.revision
}

// isGroup says whether several machines serve the model together.
func (a *acceptance) isGroup() bool { return a.running().IsGroup() }

// isOnNodes reports whether the accepted plan uses existing nodes, so that nothing is bought.
func (a *acceptance) isOnNodes() bool { return a.revision != nil && a.revision.IsOnNodes() }
