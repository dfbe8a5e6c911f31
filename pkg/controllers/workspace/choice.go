// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
)

// choice returns the options for the Workspace's next plan, as this pass observed them.
func (r *Reconciler) choice(s *scope) *purchase.Choice {
	return r.market.For(purchase.Buyer{
		Workspace: s.ws, Spec: s.spec, Owner: s.owner, Namespace: s.namespace, Accepted: s.revision, Inputs: s.inputs,
		Attempts: s.attempts, Machines: s.machines, Sets: s.sets(), Pods: s.pods,
		Surge: s.surge, IsAnswering: s.isServing(r.Clock.Now()), Deleting: r.deleting(s),
		LeftNodes: s.leftNodes, CannotBuy: s.nothingToBuyWith,
	})
}

// deleting returns the offer of machines about to be lost, if it is to be avoided. It is requested again only if
// nothing else fits.
func (r *Reconciler) deleting(s *scope) *cooldown.Exclusion {
	held, now := s.heldAttempt(), r.Clock.Now()
	if held == nil || s.surge.Trouble == "" {
		return nil
	}
	offer := r.market.Offering(held.InstanceType, held.Zone, held.CapacityType, held.NodeClassName)
	lost := r.Answers.Rules.Classify(refusal.Observation{
		Provider: r.Answers.provider(r.market.ClassOf(s.revision.NodeClass)), Offering: offer,
		CreatedAt: held.StartTime.Time, GoneAt: now, WasUsable: true,
	}, r.Answers.Deadlines, now)
	past := append(r.market.Remember(lessons.Asker(s.ws), s.attempts), refusal.Attempt{
		Asker: lessons.Asker(s.ws), Offering: offer, Started: held.StartTime.Time, Ended: now,
		Cause: lost.Cause, Scope: lost.Scope, Cooldown: lost.Cooldown, Guessed: lost.Guessed,
	})
	until, cause, isLeft := refusal.NewCooldowns(past).Active(now, lessons.Asker(s.ws), offer)
	if !isLeft {
		return nil
	}
	return &cooldown.Exclusion{Offering: offer, Until: until, Cause: cause}
}
