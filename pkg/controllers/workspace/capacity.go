// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// mostSteps bounds the steps of one pass: adopt, end, next and ask are all that can follow each other.
const mostSteps = 8

// mostAttempts is how many numbers are tried to find the attempt that a machine's name came from.
const mostAttempts = 4096

// ensureCapacity gets the machines of the accepted plan, or those of the next best.
func (r *Reconciler) ensureCapacity(ctx context.Context, s *scope) error {
	s.capacityErr = classify(r.orOnNodes(ctx, s, r.acquire(ctx, s)))
	s.move()
	if s.heldAttempt() != nil {
		return s.serveOn(s.capacityErr)
	}
	return s.capacityErr
}

// acquire takes steps until there is nothing to do but to wait.
func (r *Reconciler) acquire(ctx context.Context, s *scope) error {
	for range mostSteps {
		if s.isOnNodes() {
			if err := r.ensureNodes(ctx, s); err != nil || s.isOnNodes() {
				return err
			}
		}
		state, err := r.state(ctx, s)
		if err != nil {
			return err
		}
		step := acquire.Decide(state)
		isOver, err := r.take(ctx, s, step)
		if err != nil || isOver {
			return err
		}
	}
	return &progress.WaitingError{Message: "deciding about machines", IsBrief: true}
}

// take takes one step, and says whether it was the last one of this pass.
func (r *Reconciler) take(ctx context.Context, s *scope, step acquire.Step) (isOver bool, err error) {
	now := r.Clock.Now()
	switch step.Do {
	case acquire.AdoptServing:
		return false, r.adoptServing(ctx, s)
	case acquire.Cancel:
		s.end(step.Verdict, now)
		return false, nil
	case acquire.Adopt:
		return false, r.adopt(ctx, s)
	case acquire.Replace:
		return r.replaceLost(ctx, s, step.Lost)
	case acquire.End:
		return false, r.end(ctx, s, step)
	case acquire.LetGo:
		r.endHeld(ctx, s, step.Verdict)
		return false, nil
	case acquire.Release:
		return true, r.release(ctx, s)
	case acquire.Await:
		return true, s.await(now)
	case acquire.Stop:
		return r.stop(ctx, s)
	case acquire.Next:
		return false, r.next(ctx, s)
	case acquire.Ask:
		return true, r.ask(ctx, s)
	default:
		s.verdict = step.Verdict
		if at := step.Verdict.LookAgain; !at.IsZero() {
			s.lookAgain(at.Sub(now))
		}
		if open := s.openAttempt(); open.ReadyTime == nil && s.areMachinesUsable() {
			ready := seconds(s.readySince(open, now))
			open.ReadyTime = &ready
		}
		return true, nil
	}
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
	last.Revision = s.revision.Name // an edit may have gone on with what was asked for before: this plan has stumbled, too
	log.FromContext(ctx).Info("machines were refused or lost", "attempt", last.Number, "instanceType", last.InstanceType,
		"cause", last.Reason, "words", last.Message, "rule", verdict.Rule)
	return nil
}

// adopt takes held machines for an attempt that nobody remembers.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	isFound, err := r.adoptFor(ctx, s, s.revision)
	if err != nil || isFound {
		return err
	}
	// Names that nobody here could have made up: such machines cannot be told apart later.
	for i := range s.machines {
		s.foreign = append(s.foreign, s.machines[i].Name)
	}
	return nil
}

// adoptFor takes held machines that a plan asks for into an attempt whose number their names tell.
func (r *Reconciler) adoptFor(ctx context.Context, s *scope, made *revision) (isFound bool, err error) {
	if err := r.awaitMachines(ctx, s); err != nil {
		return false, err
	}
	for number := int32(1); number <= mostAttempts; number++ {
		names, err := r.Provisioner.Names(s.owner, number, made.Plan.Nodes)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			machine := s.machines.Named(name)
			if machine == nil || machine.Deleting || !acquire.Fits(machine, &made.Revision) || s.isKnown(name) {
				continue
			}
			r.begin(s, made, number, names, machine.CreatedAt)
			return true, nil
		}
	}
	return false, nil
}

// awaitMachines returns an error while the cache does not show the machines that are held. Where no attempt tells of them,
// one that is gone would be taken for what serves, or another one be asked for in place of one that is on its way.
func (r *Reconciler) awaitMachines(ctx context.Context, s *scope) error {
	held, err := r.heldLive(ctx, s)
	if err != nil {
		return err
	}
	var shown []string
	for _, machine := range s.machines.Standing() {
		shown = append(shown, machine.Name)
	}
	if slices.Equal(slices.Sorted(slices.Values(shown)), slices.Sorted(slices.Values(capacity.MachineNames(held)))) {
		return nil
	}
	return progress.Behind("machines")
}

// release lets go of what no open attempt holds, once it is written down why. A pass that started
// from an old Workspace may not know of the attempt that holds it.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	if err := r.persist(ctx, s); err != nil {
		return err
	}
	if open := s.openAttempt(); open != nil {
		return r.ask(ctx, s)
	}
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

// awaitRelease says why nothing is asked for yet, and names the machines that are still there: one of
// them may be stuck.
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

// stop says what has to be mended. A node class that is mended is seen, everything else only by a
// change of the Workspace.
func (r *Reconciler) stop(ctx context.Context, s *scope) (isOver bool, err error) {
	last := s.attempts.Last()
	stalled := &progress.StalledError{Reason: last.Reason, Message: last.Message}
	if refusal.Mender(last.MendedBy) == refusal.MendedByClass && refusal.ClassState(last.NodeClass) != refusal.ClassReady {
		class, _, err := r.Provisioner.Class(ctx, r.market.ClassOf(s.revision.NodeClass))
		if err != nil {
			return true, err
		}
		if refusal.Mended(refusal.ClassState(last.NodeClass), class) {
			return false, r.next(ctx, s)
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

// ask asks for the machines of the open attempt that never were there, and lets go of all that do not
// belong to it.
func (r *Reconciler) ask(ctx context.Context, s *scope) error {
	open, plan := s.openAttempt(), &s.revision.Plan
	names, err := r.Provisioner.Names(s.owner, open.Number, plan.Nodes)
	if err != nil {
		return err
	}
	if err := r.awaitReplacements(s, open); err != nil {
		return err
	}
	isDedicated, err := r.preflight.IsDedicated(ctx, r.choice(s).Purchase(s.revision))
	if err != nil {
		return err
	}
	if err := r.reserveAgain(ctx, s); err != nil {
		return err
	}
	open.NodeClaims = acquire.Names(names)
	if err := r.persist(ctx, s); err != nil {
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
			"instanceType", plan.InstanceType)
	}
	if err == nil {
		s.lookAgain(acquire.CacheLag) // should they vanish before the cache shows them
	}
	return err
}

// seeCreated has this pass tell of the machines that it asked for what the next one will see of them.
func (s *scope) seeCreated(created []capacity.Created, now time.Time) {
	plan := &s.revision.Plan
	for _, made := range created {
		s.machines = append(s.machines, capacity.Machine{
			Name: made.Name, UID: made.UID, InstanceType: plan.InstanceType, CapacityType: plan.CapacityType, CreatedAt: now,
		})
	}
}

// request is for the machines of the open attempt.
func (r *Reconciler) request(s *scope) capacity.Request {
	open, plan := s.openAttempt(), &s.revision.Plan
	out := capacity.Request{
		Owner:        s.owner,
		Attempt:      open.Number,
		InstanceType: plan.InstanceType,
		Count:        plan.Nodes,
		GPUResource:  plan.GPUResource,
		GPUs:         plan.MachineGPUs,
		DiskGiB:      plan.DiskGiB,
		CapacityType: plan.CapacityType,
		HourlyPrice:  purchase.MachinePrice(plan),
		Zones:        plan.Zones,
		OneZone:      s.revision.IsGroup(),
		NodeClass:    s.revision.NodeClass,
		Labels:       s.revision.NodeLabels,
		Keep:         s.keptNames(),
		MakePods:     func(ctx context.Context) error { return r.applyPods(ctx, s) },
		Confirm:      func(ctx context.Context) error { return r.confirm(ctx, s) },
	}
	if s.revision.IsGroup() { // who buys for one machine alone goes to another zone by itself
		offer := r.market.Offering(open.InstanceType, open.Zone, open.CapacityType, open.NodeClassName)
		out.AvoidZones = r.Memory.Zones(r.Clock.Now(), asker(s.ws), offer)
	}
	for _, claim := range open.Claims {
		if claim.UID != "" {
			out.Existed = append(out.Existed, claim.Name)
		}
		if claim.Lost != nil {
			out.Replaced = append(out.Replaced, types.UID(claim.Lost.UID))
		}
	}
	return out
}

// confirm returns a conflict if this pass does not know the newest Workspace. One that has put the finalizer on, or
// written the attempts down, does.
func (r *Reconciler) confirm(ctx context.Context, s *scope) error {
	if s.persisted || s.isNew {
		return nil
	}
	return r.checkNewest(ctx, s)
}

// checkNewest returns a conflict if the Workspace has been written since this pass read it. A machine
// may vanish sooner than the cache shows that it was there, and would be asked for again; one of an
// attempt that the cache does not show yet would be let go.
func (r *Reconciler) checkNewest(ctx context.Context, s *scope) error {
	newest := &v1beta1.Workspace{}
	if err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(s.ws), newest)); err != nil {
		return fmt.Errorf("reading the newest version: %w", err)
	}
	if newest.ResourceVersion != s.ws.ResourceVersion {
		return apierrors.NewConflict(v1beta1.GroupVersion().WithResource("workspaces").GroupResource(), s.ws.Name,
			errors.New("it has been written since this pass read it"))
	}
	return nil
}
