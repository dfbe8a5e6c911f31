// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
)

// acceptance is what the pods are to run: what the spec comes to.
type acceptance struct {
	// planned says that it is decided what the current spec comes to: a plan, or none.
	planned bool
	// planErr says why there is no plan for the current spec.
	planErr *progress.StalledError
	// inputs are what the accepted plan was made from.
	inputs render.Inputs
	// revision is the accepted one: the plan and the rendered pods that everything follows.
	revision *revision
	// former is what the pods run on with while the machines of the accepted revision are got; nil otherwise.
	former *revision
	// runsOn is the number of the attempt whose machines alone the pods may run on; 0 where all of the
	// Workspace's will do.
	runsOn int32
}

// running is what the pods are to run now.
func (a *acceptance) running() *revision {
	if a.former != nil {
		return a.former
	}
	return a.revision
}

// isGroup says whether several machines serve the model together.
func (a *acceptance) isGroup() bool { return a.running().IsGroup() }

// isOnNodes says whether the accepted plan uses nodes that are there, so that nothing is bought.
func (a *acceptance) isOnNodes() bool { return a.revision != nil && a.revision.IsOnNodes() }
