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

// Acquisition is the state of acquiring machines for the accepted revision.
type Acquisition struct {
	// Attempts are the attempts as of now. IsPersisted reports whether this pass has written them, so that it has the
	// newest Workspace.
	Attempts    acquire.Attempts
	IsPersisted bool
	// Surge describes how the machines of two attempts exist at the same time.
	Surge acquire.Surge
	// Recreates is the reason to release the serving machines before others are acquired; empty if there is none.
	Recreates string
	// AsksAgain reports whether machines of the same kind replace the released ones. Then the loss of the released
	// machines excludes no offer.
	AsksAgain bool
	// IsMended reports whether the obstacle that stopped the last attempt is repaired.
	IsMended bool
	// Foreign are the names of held machines that cannot belong to any attempt.
	Foreign []string
	// LeftNodes are the nodes to avoid now.
	LeftNodes []render.LeftNode
	// CannotBuy reports whether no provisioner is installed.
	CannotBuy bool
	// Live holds the live reads for a decision.
	Live acquire.Live
	// Verdict is the preliminary verdict on the awaited machines.
	Verdict refusal.Verdict
	// CapacityErr explains why machines could not be requested.
	CapacityErr error
}

// OpenAttempt returns the open attempt other than the serving one, or nil.
func (a *Acquisition) OpenAttempt() *v1beta1.Attempt { return a.Attempts.OpenBut(a.Surge.Serving) }

// ServingAttempt returns the attempt that serves while a later one acquires machines, or nil.
func (a *Acquisition) ServingAttempt() *v1beta1.Attempt {
	return a.Attempts.OpenNumber(a.Surge.Serving)
}

// ServingNames returns the names of the serving attempt's machines.
func (a *Acquisition) ServingNames() []string {
	if serving := a.ServingAttempt(); serving != nil {
		return serving.NodeClaims
	}
	return nil
}

// PlanOf converts a revision for package acquire; nil for nil.
func PlanOf(made *revision.Revision) *acquire.Plan {
	if made == nil {
		return nil
	}
	return &acquire.Plan{Name: made.Name, Revision: &made.Revision}
}
