// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/progress"
	revisions "github.com/modelberth/modelberth/pkg/revision"
)

// next chooses an affordable plan outside the cooldowns and begins an attempt for it. The end of the last attempt has
// been written: the plan pinned here hides the former request. While the spec has no plan, another attempt follows only
// if the spec lets machines be bought and the model has answered with the accepted plan: nobody would miss it otherwise.
func (r *Reconciler) next(ctx context.Context, s *scope) error {
	if s.planErr != nil && (s.buysNothing() || !s.hasServed()) {
		return s.planErr
	}
	number := s.attempts.NextNumber()
	if _, err := r.Provisioner.Names(s.owner, number, s.revision.Plan.Nodes); err != nil {
		return err // there is nothing to buy with
	}
	made, err := r.choose(ctx, s, number)
	if err != nil || made == nil || s.isOnNodes() || r.choice(s).Suffices(made) {
		return err
	}
	names, err := r.Provisioner.Names(s.owner, number, s.revision.Plan.Nodes)
	if err != nil {
		return err
	}
	r.begin(s, s.revision, number, names, r.Clock.Now())
	return nil
}

// choose chooses an affordable plan outside the cooldowns, and pins it. It returns nil if the serving machines are to be
// released first.
func (r *Reconciler) choose(ctx context.Context, s *scope, number int32) (*revision, error) {
	// A former leader may have written the end of its attempt when this one had read all the others.
	now := r.Clock.Now()
	r.lessons.Wake(r.Memory.Learn(now, refusal.Credible(r.market.Remember(lessons.Asker(s.ws), s.ws.Status.Attempts), now)...))
	key := client.ObjectKeyFromObject(s.ws)
	r.waiting.Add(key) // before the look: later changes must wake it
	choice := r.choice(s)
	made, err := choice.Affordable(ctx, number)
	if alone, ok := errors.AsType[*acquire.RecreateError](err); ok {
		s.recreates, s.asksAgain = alone.Error(), made != nil && choice.IsLikeServing(made) && choice.IsAnswering
		r.waiting.Remove(key)
		return nil, nil
	}
	if err == nil && len(s.attempts) == 0 && !s.isNew && !made.IsOnNodes() { // a lost status has none, either
		err = r.awaitMachines(ctx, s)
	}
	if err == nil {
		err = r.pin(ctx, s, made)
	}
	if err != nil {
		r.waiting.Narrow(key, watch.InterestOf(lessons.Asker(s.ws), s.ws, choice.LeftAlone, err))
		return nil, err
	}
	r.waiting.Remove(key)
	return made, nil
}

// awaitMachines returns an error while the cache lacks a held machine.
func (r *Reconciler) awaitMachines(ctx context.Context, s *scope) error {
	if err := r.readMachines(ctx, s); err != nil {
		return err
	}
	return acquire.AwaitMachines(s.machines, s.live.Machines)
}

// pin pins a new plan before its purchase; the accepted one has to be the newest. A plan from a pass over an old
// Workspace would be taken for the next attempt's, and the machines of the open one be released.
func (r *Reconciler) pin(ctx context.Context, s *scope, made *revision) error {
	if made == s.revision {
		return r.awaitRevision(ctx, s)
	}
	if err := r.confirm(ctx, s); err != nil {
		return err
	}
	pinned, err := r.createRevision(ctx, s, s.inputs, made, fallbackRevision)
	if err != nil {
		return err
	}
	if !purchase.SameMachines(&pinned.Plan, &made.Plan) { // another pass has pinned its own under that name
		return progress.Behind("revision")
	}
	former := s.revision
	if s.revision = pinned; purchase.SameMachines(&pinned.Plan, &former.Plan) {
		log.FromContext(ctx).Info("the price of the plan has changed", "plan", pinned.Plan.Summary(),
			"from", former.Plan.HourlyPrice, "to", pinned.Plan.HourlyPrice)
	} else {
		s.fellBack = former.Plan.Summary()
		log.FromContext(ctx).Info("falling back to another plan", "from", s.fellBack, "to", pinned.Plan.Summary())
	}
	return r.ensureNames(ctx, s)
}

// awaitRevision returns an error while the cache lacks a successor of the accepted plan: a former leader pinned it
// after a refusal or a ceiling, and recorded no attempt for it. Machines requested here would be released for that
// plan. A Workspace's first pass has no former leader.
func (r *Reconciler) awaitRevision(ctx context.Context, s *scope) error {
	if s.isNew {
		return nil
	}
	hash, err := revisions.Hash(s.inputs)
	if err != nil {
		return err
	}
	isThere, err := r.revisions.Exists(ctx, s.ws, revisions.Name(s.ws, hash, s.revisions.Next(), fallbackRevision))
	if err == nil && isThere {
		err = progress.Behind("revision")
	}
	return err
}
