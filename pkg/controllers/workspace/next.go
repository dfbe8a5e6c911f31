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
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/progress"
	revisions "github.com/modelberth/modelberth/pkg/revision"
)

// next chooses among what is not left alone after refusals and can be afforded, and begins an attempt
// for it. How the last one ended is written down before: the plan that is pinned here hides what was
// asked for.
func (r *Reconciler) next(ctx context.Context, s *scope) error {
	if err := r.closeLast(ctx, s); err != nil {
		return err
	}
	number := s.attempts.NextNumber()
	if _, err := r.Provisioner.Names(s.owner, number, s.revision.Plan.Nodes); err != nil {
		return err // there is nothing to buy with
	}
	// A controller that led before may have written how its attempt ended when this one knew all the others.
	now := r.Clock.Now()
	r.lessons.wake(r.Memory.Learn(now, refusal.Credible(r.market.Remember(asker(s.ws), s.ws.Status.Attempts), now)...))
	key := client.ObjectKeyFromObject(s.ws)
	r.waiting.Add(key) // before it looks: what changes meanwhile must wake it
	choice := r.choice(s)
	made, err := choice.Affordable(ctx, number)
	if alone, ok := errors.AsType[*acquire.RecreateError](err); ok {
		s.recreates, s.asksAgain = alone.Error(), made != nil && choice.IsLikeServing(made) && choice.IsAnswering
		r.waiting.Remove(key)
		return nil
	}
	if err == nil && len(s.attempts) == 0 && !s.isNew && !made.IsOnNodes() { // a status that was lost tells of none, either
		err = r.awaitMachines(ctx, s)
	}
	if err == nil {
		err = r.pin(ctx, s, made)
	}
	if err != nil {
		r.waiting.Narrow(key, watch.InterestOf(asker(s.ws), s.ws, choice.LeftAlone, err))
		return err
	}
	r.waiting.Remove(key)
	if s.isOnNodes() || choice.Suffices(made) {
		return nil
	}
	names, err := r.Provisioner.Names(s.owner, number, s.revision.Plan.Nodes)
	if err != nil {
		return err
	}
	r.begin(s, s.revision, number, names, r.Clock.Now())
	return nil
}

// closeLast writes down how the last attempt ended. While the spec has no plan, another follows only if the spec lets
// machines be bought and the model has answered with the accepted plan: nobody would miss it otherwise.
func (r *Reconciler) closeLast(ctx context.Context, s *scope) error {
	if err := r.persist(ctx, s); err != nil {
		return err
	}
	if s.planErr != nil && (s.buysNothing() || !s.hasServed()) {
		return s.planErr
	}
	return nil
}

// pin pins a plan that was made anew, before anything of it is bought; the accepted one is, and has to be the newest. What
// a pass pins that started from an old Workspace would be taken for the plan that the next attempt follows, and the
// machines of the open one be let go.
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

// awaitRevision returns an error while the cache does not show a plan that follows the accepted one: a controller that led
// before has pinned it, because of a refusal or of a ceiling, and has not told of an attempt for it. What is asked for here
// would be let go for that plan. Nobody has led before a Workspace's first pass.
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
