// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/group"
)

// Outcome holds the results of this pass, and the time of the next look.
type Outcome struct {
	// IsNew: it added the finalizer, before any purchase.
	IsNew bool
	// IsObserved: the observation is complete.
	IsObserved bool
	// HasService: the Services of the Workspace exist and are its own.
	HasService bool
	// IsRolling: it changed the pods, so their observation is outdated.
	IsRolling bool
	// GroupStep is the step for the serving group.
	GroupStep group.Step
	// Created are the requested machines.
	Created []capacity.Created
	// Exposed warns that pods can read the metadata of the requested machines; empty without evidence.
	Exposed string
	// Wasted is the cost in USD of machines released before they were of use.
	Wasted float64
	// FellBackFrom is the plan that another one replaced; empty otherwise.
	FellBackFrom string
	// Unheard is the reason to ignore nodes that are not Ready; empty otherwise.
	Unheard string
	// Engine has the figures of the engine; nil without a probe.
	Engine *status.Engine
	// Speed of the probed engine; nil if the status has it.
	Speed *v1beta1.EngineSpeed
	// IsFinalized: the Workspace is gone, so there is nothing to report on.
	IsFinalized bool
	// RequeueAfter requests another pass although nothing may happen.
	RequeueAfter time.Duration
}

// LookAgain requests another pass after a while, or sooner.
func (o *Outcome) LookAgain(after time.Duration) {
	after = max(after, acquire.ShortestLook)
	if o.RequeueAfter == 0 || after < o.RequeueAfter {
		o.RequeueAfter = after
	}
}
