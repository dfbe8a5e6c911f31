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

// reserveAgain has the money reserved for machines of the open attempt that are not there yet: a
// restart may have lost it, the plan may have grown, a ceiling may have been lowered. What serves is
// kept; an attempt that cannot be completed any more is let go.
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
	r.waiting.Add(key) // before it looks: money that is freed meanwhile must wake it
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

// buysNothing says whether the spec, whatever was accepted before, asks for existing nodes only.
func (s *scope) buysNothing() bool {
	return s.ws.Resource.EffectiveNodeSource() == v1beta1.NodeSourceExisting
}

// stopBuying has no further machine bought for the open attempt: what serves is kept.
func (s *scope) stopBuying(open *v1beta1.Attempt, why string, now time.Time) error {
	if open.ReadyTime == nil {
		return s.abandon(why, now)
	}
	return &progress.WaitingError{Reason: v1beta1.ReasonNoMachineAllowed, Message: why}
}

// abandon lets go of the machines of the open attempt, which may not be completed.
func (s *scope) abandon(why string, now time.Time) error {
	s.end(acquire.Released("the machines were released: "+why), now)
	return &progress.WaitingError{Reason: v1beta1.ReasonSpendingCeiling, Message: why, IsBrief: true}
}
