// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/isolation"
)

// Choice returns the options for the Workspace's next plan, as this pass observed them.
func (e *Executor) Choice(s *scope.Scope) *purchase.Choice {
	if s.Limits == nil { // all choices of a pass use the same limits
		now := e.Market.CurrentLimits()
		s.Limits = &now
	}
	return e.Market.For(purchase.Buyer{
		Limits: *s.Limits, Workspace: s.Workspace, Spec: s.Spec, Owner: s.Owner, Namespace: s.Namespace, Accepted: s.Revision,
		Inputs: s.Inputs, Attempts: s.Attempts, Machines: s.Machines, Sets: s.ReplacedSets(), Pods: s.ReplacedPods(),
		Surge: s.Surge, IsAnswering: s.IsServing(e.Clock.Now()), Deleting: e.deleting(s),
		LeftNodes: s.LeftNodes, CannotBuy: s.CannotBuy,
		IsRepair: s.IsRepair() && e.exposure(s) == "",
	})
}

// exposure describes how other pods can reach the group of this Workspace; empty if nothing shows that they can.
func (e *Executor) exposure(s *scope.Scope) string {
	return e.Exposure(isolation.Group(client.ObjectKeyFromObject(s.Workspace)))
}

// deleting excludes the offering of the serving machines if they are about to be lost and that loss begins a cooldown;
// otherwise it returns nil. The controller requests that offering again only if nothing else fits.
func (e *Executor) deleting(s *scope.Scope) *cooldown.Exclusion {
	serving, now := s.ServingAttempt(), e.Clock.Now()
	if serving == nil || s.Surge.Fault == "" {
		return nil
	}
	offer := e.Market.Offering(serving.InstanceType, serving.Zone, serving.CapacityType, serving.NodeClassName)
	lost := e.Settings.Rules.Classify(refusal.Observation{
		Provider: e.Settings.Provider(e.Market.ClassOf(s.Revision.NodeClass)), Offering: offer,
		CreatedAt: serving.StartTime.Time, GoneAt: now, WasUsable: true,
	}, e.Settings.Deadlines, now)
	past := append(e.Market.Remember(lessons.Asker(s.Workspace), s.Attempts), refusal.Attempt{
		Asker: lessons.Asker(s.Workspace), Offering: offer, Started: serving.StartTime.Time, Ended: now,
		Cause: lost.Cause, Scope: lost.Scope, Cooldown: lost.Cooldown, Guessed: lost.Guessed,
	})
	until, cause, isLeft := refusal.NewCooldowns(past).Active(now, lessons.Asker(s.Workspace), offer)
	if !isLeft {
		return nil
	}
	return &cooldown.Exclusion{Offering: offer, Until: until, Cause: cause}
}
