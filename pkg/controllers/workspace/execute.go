// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
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
func (r *Reconciler) await(s *scope) error {
	known := r.snapshot(s)
	if left := s.machines.Leaving(); len(left) > 0 || !known.IsMoved() {
		return s.awaitRelease(left)
	}
	return &progress.WaitingError{
		Message: "waiting for the pods to leave the old machines",
		After:   max(known.MoveDeadline().Sub(known.Judge.Now), acquire.ShortestLook),
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
