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

// Outcome holds the results of this pass, and the time of the next pass.
type Outcome struct {
	// IsNew reports whether the pass added the finalizer, which happens before any purchase.
	IsNew bool
	// IsObserved reports whether the observation is complete.
	IsObserved bool
	// HasService reports whether the Service of the Workspace exists and is its own.
	HasService bool
	// IsRolling reports whether the pass changed the pods, so that their observation is outdated.
	IsRolling bool
	// GroupStep is the step for the serving group.
	GroupStep group.Step
	// Created are the requested machines.
	Created []capacity.Created
	// Exposed warns that pods can read the metadata of the requested machines; empty if nothing shows that they can.
	Exposed string
	// Wasted is the cost in USD of machines that ended without ever serving.
	Wasted float64
	// FellBackFrom is the plan that this pass replaced by another one; empty if it replaced none.
	FellBackFrom string
	// Unheard explains why nodes that are not Ready do not count as lost; empty otherwise.
	Unheard string
	// Engine has the engine's figures; nil if the pass did not probe the engine.
	Engine *status.Engine
	// Speed is the speed of the probed engine; nil if the status keeps its own.
	Speed *v1beta1.EngineSpeed
	// Adapters has the adapters of an engine that changes them; nil if the status keeps its own.
	Adapters []v1beta1.AdapterStatus
	// IsFinalized reports whether the Workspace is gone, so that no status is written.
	IsFinalized bool
	// RequeueAfter requests another pass even if no event arrives.
	RequeueAfter time.Duration
}

// LookAgain requests another pass after this time at the latest.
func (o *Outcome) LookAgain(after time.Duration) {
	after = max(after, acquire.ShortestLook)
	if o.RequeueAfter == 0 || after < o.RequeueAfter {
		o.RequeueAfter = after
	}
}
