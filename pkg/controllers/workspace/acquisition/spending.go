// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Reserve reserves the money for the missing machines of the open attempt: a restart may have lost the reservation, the
// plan may have grown, or a ceiling may have been lowered. If the money is short, an attempt that has had all its
// machines keeps them, and any other attempt is released.
func (e *Executor) Reserve(ctx context.Context, s *scope.Scope) error {
	open, key := s.OpenAttempt(), client.ObjectKeyFromObject(s.Workspace)
	if s.PlanErr != nil && buysNothing(s.Workspace) && acquire.Misses(open, s.Revision.Plan.Nodes) {
		return s.PlanErr
	}
	choice := e.Choice(s)
	accepted, forbidden := choice.Today(s.Revision)
	if forbidden != "" && acquire.Misses(open, s.Revision.Plan.Nodes) {
		return stopBuying(s, open, s.Revision.Plan.InstanceType+" may no longer be bought: "+forbidden, e.Clock.Now())
	}
	budget := choice.Budget()
	err := budget.Beside(accepted.Plan.InstanceType, accepted.Plan.HourlyPrice)
	if over, ok := errors.AsType[*acquire.RecreateError](err); ok { // the limit was lowered meanwhile
		return abandon(s, v1beta1.ReasonSpendingCeiling, over.Why, e.Clock.Now())
	}
	e.Waiting.Add(key) // before the check, so that money freed later wakes the Workspace
	over, err := choice.Reserve(ctx, accepted, open.Number)
	if over == nil {
		e.Waiting.Remove(key)
		return err
	}
	short := choice.Short(over)
	if open.ReadyTime == nil {
		return abandon(s, short.Reason, short.Message, e.Clock.Now())
	}
	return short
}

// stopBuying buys nothing more for the open attempt. It keeps the machines of an attempt that has had them all.
func stopBuying(s *scope.Scope, open *v1beta1.Attempt, why string, now time.Time) error {
	if open.ReadyTime == nil {
		return abandon(s, v1beta1.ReasonSpendingCeiling, why, now)
	}
	return &progress.WaitingError{Reason: v1beta1.ReasonNoMachineAllowed, Message: why}
}

// abandon ends the open attempt, which must not be completed, and releases its machines.
func abandon(s *scope.Scope, reason, why string, now time.Time) error {
	s.EndAttempt(acquire.Released("the machines were released: "+why), now)
	return &progress.WaitingError{Reason: reason, Message: why, IsBrief: true}
}

// buysNothing reports whether the current spec allows only existing nodes.
func buysNothing(ws *v1beta1.Workspace) bool {
	return ws.Resource.EffectiveNodeSource() == v1beta1.NodeSourceExisting
}
