// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/progress"
)

// reserveAgain reserves the money for the missing machines of the open attempt: a restart may have lost the
// reservation, the plan may have grown, a ceiling may have been lowered. Serving machines stay; an attempt that
// cannot be completed is released.
func (r *Reconciler) reserveAgain(ctx context.Context, s *scope) error {
	open, key := s.openAttempt(), client.ObjectKeyFromObject(s.ws)
	if s.planErr != nil && s.buysNothing() && acquire.Misses(open, s.revision.Plan.Nodes) {
		return s.planErr
	}
	choice := r.choice(s)
	accepted, forbidden := choice.Today(s.revision)
	if forbidden != "" && acquire.Misses(open, s.revision.Plan.Nodes) {
		return s.stopBuying(open, s.revision.Plan.InstanceType+" may not be bought any more: "+forbidden, r.Clock.Now())
	}
	budget := choice.Budget()
	if over := budget.Beside(accepted.Plan.InstanceType, accepted.Plan.HourlyPrice); over != nil { // the limit was lowered meanwhile
		return s.abandon(over.Error(), r.Clock.Now())
	}
	r.waiting.Add(key) // before the look: money that is freed later must wake it
	over, err := choice.Reserve(ctx, accepted, open.Number)
	if over == nil {
		r.waiting.Remove(key)
		return err
	}
	if open.ReadyTime == nil {
		return s.abandon(over.Error(), r.Clock.Now())
	}
	return choice.Short(over)
}

// buysNothing reports whether the present spec asks for existing nodes only.
func (s *scope) buysNothing() bool {
	return s.ws.Resource.EffectiveNodeSource() == v1beta1.NodeSourceExisting
}

// stopBuying ends purchases for the open attempt: its serving machines stay.
func (s *scope) stopBuying(open *v1beta1.Attempt, why string, now time.Time) error {
	if open.ReadyTime == nil {
		return s.abandon(why, now)
	}
	return &progress.WaitingError{Reason: v1beta1.ReasonNoMachineAllowed, Message: why}
}

// abandon releases the machines of the open attempt, as it may not be completed.
func (s *scope) abandon(why string, now time.Time) error {
	s.end(acquire.Released("the machines were released: "+why), now)
	return &progress.WaitingError{Reason: v1beta1.ReasonSpendingCeiling, Message: why, IsBrief: true}
}
