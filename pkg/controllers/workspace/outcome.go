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

// outcome holds the results of this pass, and the time of the next look.
type outcome struct {
	// isNew: it added the finalizer, before any purchase.
	isNew bool
	// observed: the observation is complete.
	observed bool
	// named: the Services of the Workspace exist and are its own.
	named bool
	// rolling: it changed the pods, so their observation is outdated.
	rolling bool
	// groupStep is the step for the serving group.
	groupStep group.Step
	// created are the requested machines.
	created []capacity.Created
	// exposed warns that pods can read the metadata of the requested machines; empty without evidence.
	exposed string
	// wasted is the cost in USD of machines released before they were of use.
	wasted float64
	// fellBack is the plan that another one replaced; empty otherwise.
	fellBack string
	// unheard is the reason to ignore nodes that are not Ready; empty otherwise.
	unheard string
	// engine has the figures of the engine; nil without a probe.
	engine *status.Engine
	// finalized: the Workspace is gone, so there is nothing to report on.
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
