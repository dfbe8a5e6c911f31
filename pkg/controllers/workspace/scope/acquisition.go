// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Acquisition is how machines are got for the accepted revision.
type Acquisition struct {
	// Attempts as they are now. IsPersisted: this pass has written them, so it has the newest Workspace.
	Attempts    acquire.Attempts
	IsPersisted bool
	// Surge is how the machines of two attempts exist at once.
	Surge acquire.Surge
	// Recreates is the reason to release the serving machines before others are acquired.
	Recreates string
	// AsksAgain: others of the same kind replace them. Their loss rules out nothing then.
	AsksAgain bool
	// IsMended: what stopped the last attempt has been mended.
	IsMended bool
	// Foreign are held machines without a possible attempt.
	Foreign []string
	// LeftNodes are the nodes to avoid now.
	LeftNodes []render.LeftNode
	// CannotBuy: no provisioner is installed.
	CannotBuy bool
	// Live is what was read past the caches for a decision.
	Live acquire.Live
	// Verdict is the preliminary one on the awaited machines.
	Verdict refusal.Verdict
	// CapacityErr is why machines could not be requested.
	CapacityErr error
}

// OpenAttempt returns the open attempt, or nil. The serving one does not count.
func (a *Acquisition) OpenAttempt() *v1beta1.Attempt { return a.Attempts.OpenBut(a.Surge.Serving) }

// ServingAttempt returns the attempt that serves while the latest acquires machines, or nil.
func (a *Acquisition) ServingAttempt() *v1beta1.Attempt {
	return a.Attempts.OpenNumber(a.Surge.Serving)
}

// ServingNames returns the names of the machines of the serving attempt.
func (a *Acquisition) ServingNames() []string {
	if serving := a.ServingAttempt(); serving != nil {
		return serving.NodeClaims
	}
	return nil
}

// PlanOf returns a revision as package acquire takes it; nil for nil.
func PlanOf(made *revision.Revision) *acquire.Plan {
	if made == nil {
		return nil
	}
	return &acquire.Plan{Name: made.Name, Revision: &made.Revision}
}
