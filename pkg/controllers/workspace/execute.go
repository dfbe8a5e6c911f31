// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// end closes the open attempt.
func (r *Reconciler) end(ctx context.Context, s *scope, step acquire.Step) error {
	verdict := step.Verdict
	if step.Recheck || verdict.Cause == refusal.None {
		held, err := r.heldLive(ctx, s)
		if err == nil {
			err = cmp.Or(awaitUsable(s.machines, held), awaitSame(s.machines, held))
		}
		if err != nil {
			return err
		}
	}
	if s.asksAgain {
		verdict = refusal.Verdict{Message: s.recreates + "; " + verdict.Message}
	}
	if verdict.Cause == refusal.None {
		s.end(acquire.Released(cmp.Or(verdict.Message, s.recreates, "the machines were released for another plan")), r.Clock.Now())
		return nil
	}
	s.wasted += s.waste(r.Clock.Now())
	last := s.openAttempt()
	s.end(verdict, r.Clock.Now())
	last.Revision = s.revision.Name // the attempt may have outlived an edit: this plan has failed, too
	log.FromContext(ctx).Info("machines were refused or lost", "attempt", last.Number, "instanceType", last.InstanceType,
		"cause", last.Reason, "words", last.Message, "rule", verdict.Rule)
	return nil
}

// release releases the machines outside open attempts. A pass over an old Workspace might miss the attempt that holds
// one.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	if err := r.confirm(ctx, s); err != nil {
		return err
	}
	left, err := r.releaseBut(ctx, s)
	if err != nil || len(left) == 0 {
		return err
	}
	log.FromContext(ctx).Info("released machines", "nodeClaims", left)
	return s.awaitRelease(left)
}

// ask requests the missing machines of the open attempt and releases all others. An attempt whose machines have other
// names than recorded is not over: they are written first.
func (r *Reconciler) ask(ctx context.Context, s *scope) (isOver bool, err error) {
	open := s.openAttempt()
	names, err := r.Provisioner.Names(s.owner, open.Number, s.revision.Plan.Nodes)
	if err != nil {
		return true, err
	}
	if names = acquire.Names(names); !slices.Equal(names, open.NodeClaims) {
		open.NodeClaims = names
		return false, nil
	}
	if err := r.awaitReplacements(s, open); err != nil {
		return true, err
	}
	return true, r.buy(ctx, s, open)
}

// buy requests the missing machines of an attempt within the money.
func (r *Reconciler) buy(ctx context.Context, s *scope, open *v1beta1.Attempt) error {
	isDedicated, err := r.preflight.IsDedicated(ctx, r.choice(s).Purchase(s.revision))
	if err != nil {
		return err
	}
	if err := r.reserveAgain(ctx, s); err != nil {
		return err
	}
	asked := r.request(s)
	asked.Dedicated = isDedicated
	accepted, _ := r.choice(s).Today(s.revision)
	asked.HourlyPrice = purchase.MachinePrice(&accepted.Plan)
	outcome, err := r.Provisioner.Ensure(ctx, asked)
	if len(outcome.Released) > 0 {
		log.FromContext(ctx).Info("released machines", "nodeClaims", outcome.Released)
	}
	if len(outcome.Created) > 0 {
		s.created = outcome.Created
		s.exposed = r.preflight.MetadataWarning(ctx, r.market.ClassOf(s.revision.NodeClass))
		s.seeCreated(outcome.Created, r.Clock.Now())
		acquire.NoteCreated(open, outcome.Created, r.Clock.Now())
		log.FromContext(ctx).Info("asked for machines", "attempt", open.Number, "count", len(outcome.Created),
			"instanceType", s.revision.Plan.InstanceType)
	}
	if err == nil {
		s.lookAgain(acquire.CacheLag) // should they vanish before the cache shows them
	}
	return err
}

// stop reports the obstacle. A watch shows a repaired node class; all else needs a change of the Workspace.
func (r *Reconciler) stop(ctx context.Context, s *scope) (isOver bool, err error) {
	last := s.attempts.Last()
	stalled := &progress.StalledError{Reason: last.Reason, Message: last.Message}
	if refusal.Mender(last.MendedBy) == refusal.MendedByClass && refusal.ClassState(last.NodeClass) != refusal.ClassReady {
		class, _, err := r.Provisioner.Class(ctx, r.market.ClassOf(s.revision.NodeClass))
		if err != nil {
			return true, err
		}
		if s.isMended = refusal.Mended(refusal.ClassState(last.NodeClass), class); s.isMended {
			return false, nil
		}
		stalled.Message += "; " + last.Fix
		stalled.RetryAfter = retryClass
		return true, stalled
	}
	if last.Fix != "" {
		stalled.Message += "; " + last.Fix
	}
	stalled.Message += "; then change the spec, or set the annotation " + v1beta1.AnnotationRetryCapacity +
		" to a new value to retry"
	return true, stalled
}

// await explains the wait before the next request.
func (s *scope) await(now time.Time) error {
	if left := s.machines.Leaving(); len(left) > 0 || !s.isMoved() {
		return s.awaitRelease(left)
	}
	return &progress.WaitingError{
		Message: "waiting for the pods to leave the old machines", After: max(s.moveDeadline().Sub(now), acquire.ShortestLook),
	}
}

// awaitRelease explains the wait and names the remaining machines: one of them may be stuck.
func (s *scope) awaitRelease(left []string) error {
	wait := s.waitForRelease(left)
	last := s.attempts.Last()
	switch {
	case last == nil || last.Reason == "":
		return wait
	case last.Reason == v1beta1.ReasonReleased:
		return &progress.WaitingError{Message: last.Message + "; " + wait.Error(), After: retryRelease}
	}
	message := fmt.Sprintf("%s: %s; ", last.InstanceType, last.Message)
	switch {
	case !refusal.Cause(last.Reason).NeedsPerson():
		message += "the next best machine type follows once they are gone: "
	case last.Fix != "":
		message += last.Fix + "; "
	}
	return &progress.WaitingError{Reason: last.Reason, Message: message + wait.Error(), After: retryRelease}
}

// releaseBut releases all machines except those of the held attempt.
func (r *Reconciler) releaseBut(ctx context.Context, s *scope) ([]string, error) {
	surger, isSurger := r.Provisioner.(capacity.Surger)
	if keep := s.keptNames(); isSurger && len(keep) > 0 {
		return surger.ReleaseBut(ctx, s.owner, keep)
	}
	return r.Provisioner.Release(ctx, s.owner)
}

// seeCreated adds the requested machines to the observation, as the next pass will see them.
func (s *scope) seeCreated(created []capacity.Created, now time.Time) {
	plan := &s.revision.Plan
	for _, made := range created {
		s.machines = append(s.machines, capacity.Machine{
			Name: made.Name, UID: made.UID, InstanceType: plan.InstanceType, CapacityType: plan.CapacityType, CreatedAt: now,
		})
	}
}

// endHeld closes the held attempt: its machines are not needed any more, or lost.
func (r *Reconciler) endHeld(ctx context.Context, s *scope, verdict refusal.Verdict) {
	held := s.heldAttempt()
	if verdict.Cause == refusal.None {
		verdict = refusal.Verdict{Cause: v1beta1.ReasonReleased, Message: "the machines were released: the pods have moved to the machines of a later attempt"}
	}
	acquire.Close(held, verdict, s.ws.Generation, r.Clock.Now())
	log.FromContext(ctx).Info("the former machines are not held any longer", "attempt", held.Number, "cause", held.Reason,
		"words", held.Message)
}

// readySince is when the last of the machines of an attempt became usable by the provisioner's own
// word: nobody may have looked for a while.
func (s *scope) readySince(open *v1beta1.Attempt, now time.Time) time.Time {
	var since time.Time
	for _, machine := range s.servingMachines() {
		initialized := machine.Words.Initialized.Since
		if initialized.IsZero() || initialized.After(now) {
			return now
		}
		if initialized.After(since) {
			since = initialized
		}
	}
	if since.Before(open.StartTime.Time) { // the clocks differ
		return open.StartTime.Time
	}
	return since
}
