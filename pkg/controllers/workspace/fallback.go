// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
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
	r.wakeFor(r.Memory.Learn(now, refusal.Credible(r.remembered(asker(s.ws), s.ws.Status.Attempts), now)...))
	key := client.ObjectKeyFromObject(s.ws)
	r.waiting.add(key) // before it looks: what changes meanwhile must wake it
	made, err := r.affordable(ctx, s, number)
	if alone, ok := errors.AsType[*recreateError](err); ok {
		s.recreates, s.asksAgain = alone.Error(), made != nil && s.isOfHeld(made) && s.isServing(r.Clock.Now())
		r.waiting.remove(key)
		return nil
	}
	if err == nil && len(s.attempts) == 0 && !s.isNew && !made.IsOnNodes() { // a status that was lost tells of none, either
		err = r.awaitMachines(ctx, s)
	}
	if err == nil {
		err = r.pin(ctx, s, made)
	}
	if err != nil {
		r.waiting.narrow(key, s.awaited(err))
		return err
	}
	r.waiting.remove(key)
	if s.isOnNodes() || s.willDo(made) {
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

// choose returns the plan to ask for: the accepted one at the price of the day, or one that is made anew where the
// accepted one has been refused, is over a limit of the day, or was made while something was left alone that may be had
// by now. What is about to be lost is left alone where anything else will do.
func (r *Reconciler) choose(ctx context.Context, s *scope, going *ladder.Exclusion) (*revision, error) {
	excluded, err := r.excluded(s)
	if err != nil {
		return nil, err
	}
	if going != nil {
		made, err := r.makePlan(ctx, s, s.inputs, limits{excluded: append(slices.Clone(excluded), *going)})
		if _, isStalled := errors.AsType[*progress.StalledError](err); !isStalled {
			return whilePassing(made), err
		}
	}
	accepted, forbidden := r.today(s, s.revision)
	if forbidden != "" {
		return r.replaceForbidden(ctx, s, excluded, forbidden)
	}
	isCooling := slices.ContainsFunc(excluded, func(e ladder.Exclusion) bool { return isOffer(e, &s.revision.Plan) })
	last := s.attempts.LatestBut(s.held)
	isFresh := last == nil || last.Reason == v1beta1.ReasonReleased
	if !isCooling && !s.revision.Passing && isFresh {
		return accepted, nil
	}
	made, err := r.makePlan(ctx, s, s.inputs, limits{excluded: excluded})
	if _, isStalled := errors.AsType[*progress.StalledError](err); isStalled {
		if !isCooling {
			return accepted, nil // the plan stands: only its refusal is news, and that is over
		}
		return nil, r.exhausted(ctx, s, excluded)
	}
	if err != nil {
		return nil, err
	}
	if !isCooling && sameMachines(&made.Plan, &s.revision.Plan) {
		return accepted, nil
	}
	made.Passing = len(excluded) > 0
	return made, nil
}

// replaceForbidden plans anew where the limits of the day forbid the accepted plan, which the new one says.
func (r *Reconciler) replaceForbidden(ctx context.Context, s *scope, excluded []ladder.Exclusion, forbidden string) (*revision, error) {
	made, err := r.makePlan(ctx, s, s.inputs, limits{excluded: excluded})
	if _, isStalled := errors.AsType[*progress.StalledError](err); isStalled && len(excluded) > 0 {
		if _, err = r.makePlan(ctx, s, s.inputs, limits{}); err == nil {
			err = r.exhausted(ctx, s, excluded) // only the cooldowns are in the way
		}
	}
	if err != nil {
		return nil, err
	}
	made.Plan.Warnings = append(made.Plan.Warnings,
		fmt.Sprintf("replaces %s, which may not be bought today: %s", s.revision.Plan.Summary(), forbidden))
	made.Passing = len(excluded) > 0
	return made, nil
}

// whilePassing marks a plan that was made while something was left alone.
func whilePassing(made *revision) *revision {
	if made != nil {
		made.Passing = true
	}
	return made
}

// affordable chooses a plan whose money is reserved and whose turn it is, or one that costs nothing more. Where
// there is no money for anything but what is about to be lost, that is asked for in its own place.
func (r *Reconciler) affordable(ctx context.Context, s *scope, number int32) (*revision, error) {
	going := r.going(s)
	made, err := r.affordableBut(ctx, s, number, going)
	wait, isShort := errors.AsType[*progress.WaitingError](err)
	if going != nil && isShort && wait.Reason == v1beta1.ReasonSpendingCeiling {
		made, err = r.affordableBut(ctx, s, number, nil)
	}
	if err != nil {
		r.preflight.Settle(s.ws.UID)
	}
	return made, err
}

// affordableBut leaves out what is about to be lost; nil leaves out nothing. With a *recreateError comes the plan whose
// machines would take the place of those that serve.
func (r *Reconciler) affordableBut(ctx context.Context, s *scope, number int32, going *ladder.Exclusion) (*revision, error) {
	made, err := r.choose(ctx, s, going)
	if err != nil || made.IsOnNodes() || s.willDo(made) {
		return made, err
	}
	if err := r.checkPurchase(ctx, s, made); err != nil {
		return nil, err
	}
	if _, err := planning.APIKey(ctx, r.Live, s.ws); err != nil { // it may have gone since the plan was pinned
		return nil, err
	}
	if err := r.checkBeside(s, made); err != nil {
		return made, err
	}
	granted, err := r.afford(ctx, s, made, number)
	if _, isRecreate := errors.AsType[*recreateError](err); isRecreate {
		return made, err
	}
	if err != nil || granted.IsOnNodes() {
		return granted, err
	}
	if granted != made {
		if err := r.checkPurchase(ctx, s, granted); err != nil {
			r.Ledger.Forget(s.ws.UID)
			return nil, err
		}
	}
	return granted, r.takeTurn(s, granted)
}

// takeTurn says whether the offer may be asked for now, or is another Workspace's to ask for first.
func (r *Reconciler) takeTurn(s *scope, made *revision) error {
	plan := &made.Plan
	offer := r.offering(plan.InstanceType, zoneOf(plan.Zones), plan.CapacityType, r.classOf(made.NodeClass).Name)
	if s.isRetry() || r.Memory.Ask(r.Clock.Now(), asker(s.ws), offer) {
		return nil
	}
	r.Ledger.Forget(s.ws.UID)
	return &progress.WaitingError{Message: "another Workspace tries " + plan.InstanceType + " first", IsBrief: true}
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
	if !sameMachines(&pinned.Plan, &made.Plan) { // another pass has pinned its own under that name
		return progress.Behind("revision")
	}
	former := s.revision
	if s.revision = pinned; sameMachines(&pinned.Plan, &former.Plan) {
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

// sameMachines says whether two plans ask for the same.
func sameMachines(a, b *planner.Plan) bool {
	return a.InstanceType == b.InstanceType && a.CapacityType == b.CapacityType && a.Nodes == b.Nodes &&
		zoneOf(a.Zones) == zoneOf(b.Zones) && slices.Equal(a.NodeNames, b.NodeNames)
}

func isOffer(e ladder.Exclusion, plan *planner.Plan) bool {
	return e.Offering.InstanceType == plan.InstanceType && e.Offering.CapacityType == plan.CapacityType &&
		e.Offering.Zone == zoneOf(plan.Zones)
}

// excluded is what is left alone now, in the places that the Workspace names: a refusal is about the
// place that was asked for. Nothing is while its user asks to have it tried again.
func (r *Reconciler) excluded(s *scope) ([]ladder.Exclusion, error) {
	if s.isRetry() {
		return nil, nil
	}
	class, err := r.planning.Resolver.NodeClass(s.spec)
	if err != nil {
		return nil, err
	}
	zone, className := "", r.classOf(class).Name
	if s.spec.Resource.Placement != nil {
		zone = zoneOf(s.spec.Resource.Placement.Zones)
	}
	out := r.Memory.Exclusions(r.Clock.Now(), asker(s.ws), r.offers(zone, className))
	s.leftAlone = offeringsOf(out)
	return out, nil
}

// offers are all that the catalogue knows of, in a zone, or in any if that is empty.
func (r *Reconciler) offers(zone, nodeClass string) iter.Seq[refusal.Offering] {
	return func(yield func(refusal.Offering) bool) {
		for _, known := range r.skus() {
			for _, capacityType := range []v1beta1.CapacityType{
				v1beta1.CapacityOnDemand, v1beta1.CapacityReserved, v1beta1.CapacitySpot,
			} {
				offer := refusal.Offering{
					InstanceType: known.Name, Family: known.QuotaFamily, Zone: zone, CapacityType: capacityType, NodeClass: nodeClass,
				}
				if !yield(offer) {
					return
				}
			}
		}
	}
}

// isRetry says whether the user asks to have refused machines tried again: each value of the annotation
// counts for one attempt.
func (s *scope) isRetry() bool {
	value := s.retry()
	last := s.attempts.Last()
	return value != "" && (last == nil || last.Retry != value)
}

func (s *scope) retry() string {
	return request.Shorten(s.ws.Annotations[v1beta1.AnnotationRetryCapacity], retryLimit)
}

// allAttempts are those of all Workspaces, from the cache.
func (r *Reconciler) allAttempts(ctx context.Context) ([]refusal.Attempt, error) {
	list := &v1beta1.WorkspaceList{}
	if err := r.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing workspaces: %w", err)
	}
	var out []refusal.Attempt
	for i := range list.Items {
		out = append(out, r.remembered(asker(&list.Items[i]), list.Items[i].Status.Attempts)...)
	}
	return out, nil
}

// exclusions are what is left alone, in the planner's words.
func exclusions(excluded []ladder.Exclusion) []planner.Exclusion {
	out := make([]planner.Exclusion, 0, len(excluded))
	for _, e := range excluded {
		out = append(out, planner.Exclusion{
			InstanceType: e.Offering.InstanceType, CapacityType: e.Offering.CapacityType,
			Reason: fmt.Sprintf("refused lately (%s): cooling down until %s", e.Cause, clockTime(e.Until)),
		})
	}
	return out
}

func clockTime(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 MST") }

// exhausted reports that every suitable machine type is cooling down, until when, and what would help.
func (r *Reconciler) exhausted(ctx context.Context, s *scope, excluded []ladder.Exclusion) error {
	asked, err := r.demand(ctx, s, s.inputs)
	if err != nil {
		return err
	}
	reopens := r.reopens(asked.Request, excluded)
	pinned := blocking(excluded, &s.revision.Plan)
	if reopens.IsZero() { // a new plan cannot be made any more, but the one that was accepted stands
		reopens = pinned.Until
	}
	return &progress.WaitingError{
		Reason: string(pinned.Cause),
		Message: fmt.Sprintf("every suitable machine type is cooling down until %s: %s%s",
			clockTime(reopens), r.help(asked.Request, excluded, pinned.Cause), s.wordsAbout(pinned)),
		After: max(reopens.Sub(r.Clock.Now()), time.Second),
	}
}

// blocking is the exclusion that a plan waits for, else the one that ends first.
func blocking(excluded []ladder.Exclusion, plan *planner.Plan) ladder.Exclusion {
	if i := slices.IndexFunc(excluded, func(e ladder.Exclusion) bool { return isOffer(e, plan) }); i >= 0 {
		return excluded[i]
	}
	return slices.MinFunc(excluded, func(a, b ladder.Exclusion) int { return a.Until.Compare(b.Until) })
}

// reopens is when a plan can be made again at the earliest; zero where waiting alone does not help.
func (r *Reconciler) reopens(asked planner.Request, excluded []ladder.Exclusion) time.Time {
	return ladder.Reopens(excluded, func(left []ladder.Exclusion) bool {
		_, err := r.planBut(asked, left)
		return err == nil
	})
}

// planBut is what would be asked for if no more than this were left alone.
func (r *Reconciler) planBut(asked planner.Request, excluded []ladder.Exclusion) (planner.Plan, error) {
	asked.Constraints.Excluded = append(slices.Clone(asked.Constraints.Excluded), exclusions(excluded)...)
	return r.Planner.Plan(asked)
}

// help is what would help sooner than waiting: what a larger quota would open, whichever cause the accepted plan
// waits for.
func (r *Reconciler) help(asked planner.Request, excluded []ladder.Exclusion, cause refusal.Cause) string {
	isQuota := func(e ladder.Exclusion) bool { return e.Cause == refusal.Quota }
	if !slices.ContainsFunc(excluded, isQuota) {
		return helpFor(cause)
	}
	opened, err := r.planBut(asked, slices.DeleteFunc(slices.Clone(excluded), isQuota))
	if err != nil {
		return helpFor(cause)
	}
	return fmt.Sprintf("a larger quota would allow %s (then set the annotation %s to a new value); "+
		"another machine type or region would help sooner", opened.Summary(), v1beta1.AnnotationRetryCapacity)
}

// wordsAbout quotes the latest attempt of this Workspace that led to an exclusion; empty where others
// did.
func (s *scope) wordsAbout(excluded ladder.Exclusion) string {
	for i := len(s.attempts) - 1; i >= 0; i-- {
		a := &s.attempts[i]
		scope, err := refusal.ParseScope(a.Scope)
		if err != nil || a.Reason != string(excluded.Cause) || !scope.Covers(excluded.Offering) {
			continue
		}
		words := fmt.Sprintf("; the last refusal, of %s: %s", a.InstanceType, a.Message)
		if a.Fix != "" {
			words += "; " + a.Fix
		}
		return words
	}
	return ""
}

// helpFor is what would help sooner than waiting.
func helpFor(cause refusal.Cause) string {
	switch cause {
	case refusal.Quota:
		return "a larger quota (then set the annotation " + v1beta1.AnnotationRetryCapacity + " to a new value), or another " +
			"machine type or region, would help sooner"
	case refusal.NoCapacity, refusal.NotOffered, refusal.TimedOut:
		return "another machine type, capacity type, zone or region would help sooner"
	default:
		return "another machine type would help sooner"
	}
}
