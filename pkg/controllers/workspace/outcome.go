// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/group"
)

// outcome is what this pass did, and when to look again.
type outcome struct {
	// isNew says that it put the finalizer on, before which nothing is bought.
	isNew bool
	// observed says that the observation is complete.
	observed bool
	// named says that the Services of the Workspace are there and its own.
	named bool
	// rolling says that it changed the pods, so that what is observed of them is past.
	rolling bool
	// groupStep is what is done about the group that serves.
	groupStep group.Step
	// created are the machines that it asked for.
	created []capacity.Created
	// exposed warns that pods can read the metadata of the machines that were asked for; empty where nothing says so.
	exposed string
	// wasted is what machines cost in USD that it gave up before they were of use.
	wasted float64
	// fellBack is the plan that it gave up for another one; empty where it did not.
	fellBack string
	// unheard is why it means nothing that nodes are not Ready; empty where it does.
	unheard string
	// engine has the figures of the engine; nil where it did not probe it.
	engine *status.Engine
	// finalized says that the Workspace is gone and there is nothing to report on.
	finalized bool
	// requeueAfter asks for another pass although nothing may happen.
	requeueAfter time.Duration
}

// lookAgain asks for another pass after a while, or sooner.
func (o *outcome) lookAgain(after time.Duration) {
	after = max(after, acquire.ShortestLook)
	if o.requeueAfter == 0 || after < o.requeueAfter {
		o.requeueAfter = after
	}
}
