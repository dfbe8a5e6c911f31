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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/workload"
)

// A Workspace that serves holds its old and its new plan together: the attempt whose machines serve stays open
// and is held, while the ladder works for the machines of the accepted plan beside it. At most one is held.

// hold finds out which attempt is held beside the latest. One that would do for the accepted plan is not:
// what was begun beside it is let go.
func (r *Reconciler) hold(ctx context.Context, s *scope) error {
	s.held, s.trouble = 0, ""
	surger, isSurger := r.Provisioner.(capacity.Surger)
	s.canSurge = isSurger && surger.CanSurge(s.owner)
	s.replaces = capacity.ReplacesNone
	if isSurger {
		s.replaces = surger.Replaces(s.owner)
	}
	if !s.canSurge || s.statefulSet == nil || s.isOnNodes() || s.recreates != "" {
		return nil
	}
	if err := r.adoptServing(ctx, s); err != nil {
		return err
	}
	open := s.attempts.Open()
	if len(open) == 0 {
		return nil
	}
	first, last := open[0], open[len(open)-1]
	oldest, err := r.standing(ctx, s, first, last)
	switch {
	case err != nil:
		return err
	case oldest.IsHeld():
		s.held = first.Number
	case first != last:
		if err := r.awaitNodes(ctx, s, first); err != nil {
			return err
		}
		s.end(acquire.Released("the machines were released: the earlier ones are suitable again"), r.Clock.Now())
	}
	return nil
}

// awaitNodes returns an error while the cache does not show the nodes of an attempt as they are: the trouble for which
// others are got in their place may be yet to show.
func (r *Reconciler) awaitNodes(ctx context.Context, s *scope, of *v1beta1.Attempt) error {
	for _, machine := range s.machinesOf(of) {
		shown := s.node(machine.NodeName)
		if shown == nil {
			continue
		}
		newest := &corev1.Node{}
		if err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(shown), newest)); err != nil {
			return fmt.Errorf("reading node %q: %w", shown.Name, err)
		}
		if newest.ResourceVersion != shown.ResourceVersion {
			return progress.Behind("nodes")
		}
	}
	return nil
}

// standing is how the first of the open attempts stands.
func (r *Reconciler) standing(ctx context.Context, s *scope, first, last *v1beta1.Attempt) (ladder.Open, error) {
	isWanted, err := r.isWantedOf(s, first)
	if err != nil {
		return ladder.Open{}, err
	}
	s.trouble = cmp.Or(s.troubleOf(first, first == last, r.Clock.Now()), r.irreplaceable(s, first))
	// Trouble goes with its node: machines without one will not do again, whatever else is known of them.
	answering := slices.DeleteFunc(s.machinesOf(first), func(machine capacity.Machine) bool { return !machine.NodeReady })
	isWhole := first == last || len(answering) >= min(s.revision.Plan.Nodes, len(first.NodeClaims))
	hasMoved, err := r.hasMoved(ctx, s, first, last)
	return ladder.Open{Ready: first.ReadyTime != nil, Wanted: isWanted && isWhole && s.trouble == "", Moved: hasMoved}, err
}

// isWantedOf says whether the plan asks for what an attempt has.
func (r *Reconciler) isWantedOf(s *scope, attempt *v1beta1.Attempt) (bool, error) {
	names, err := r.Provisioner.Names(s.owner, attempt.Number, s.revision.Plan.Nodes)
	return err == nil && s.isWanted(attempt, names), err
}

// troubleOf says which machine of an attempt is broken or about to be taken back, and has been for too long to
// mend by itself; empty where none is. While an attempt is alone and does not serve, a broken machine is replaced by
// itself. Once another attempt has begun, the trouble for which it began stays: its machines would be released, and
// the broken one be lost after that.
func (s *scope) troubleOf(attempt *v1beta1.Attempt, isAlone bool, now time.Time) string {
	serves := s.revisionOf(s.statefulSet).IsGroup() && s.isServing(now)
	if isAlone && s.keepsOthers(attempt) && !serves {
		return ""
	}
	for _, machine := range s.machinesOf(attempt) {
		if trouble := machine.Trouble; trouble.Message != "" && !now.Before(trouble.Since.Add(trouble.Grace)) {
			return trouble.Message
		}
	}
	return ""
}

// irreplaceable says why no machine may be bought any more in place of one that an attempt lost while it kept the others;
// empty where one may, or none was lost. The others serve until another plan has its machines.
func (r *Reconciler) irreplaceable(s *scope, attempt *v1beta1.Attempt) string {
	if !s.keepsOthers(attempt) || attempt.Revision != s.revision.Name || !acquire.Misses(attempt, s.revision.Plan.Nodes) {
		return ""
	}
	if _, forbidden := r.today(s, s.revision); forbidden != "" {
		return fmt.Sprintf("a lost %s may not be bought again: %s", s.revision.Plan.InstanceType, forbidden)
	}
	return ""
}

// hasMoved says whether the pods are told to run on the machines of a later attempt than the first. The cache
// may not show yet that they are: before those are taken for ones that nobody runs on, the API server is asked.
func (r *Reconciler) hasMoved(ctx context.Context, s *scope, first, last *v1beta1.Attempt) (bool, error) {
	if s.movedTo() > first.Number {
		return true, nil
	}
	if first == last || last.ReadyTime == nil {
		return false, nil
	}
	if isWanted, err := r.isWantedOf(s, last); err != nil || isWanted {
		return false, err
	}
	newest := &appsv1.StatefulSet{}
	err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(s.statefulSet), newest))
	if err != nil {
		return false, fmt.Errorf("reading StatefulSet %s: %w", s.statefulSet.Name, err)
	}
	if newest.UID != "" && newest.ResourceVersion != s.statefulSet.ResourceVersion {
		s.statefulSet = newest
	}
	return newest.UID != "" && s.movedTo() > first.Number, nil
}

// movedTo is the number of the attempt that the pods are told to run on; 0 where they are told none, or one that nobody has
// begun: numbers begin anew where a status is lost while nothing is held, and the cache may still be showing the set of before.
func (s *scope) movedTo() int32 {
	number := workload.PinnedAttempt(s.statefulSet)
	isHeld := slices.ContainsFunc(s.heldMachines(), func(machine capacity.Machine) bool { return machine.Attempt == number })
	if number < s.attempts.NextNumber() || isHeld {
		return number
	}
	return 0
}

// adoptServing takes the machines that serve into an attempt where the status has lost it and another plan is
// asked for by now: they would be taken for strays.
func (r *Reconciler) adoptServing(ctx context.Context, s *scope) error {
	if len(s.attempts.Open()) > 0 {
		return nil
	}
	runs := s.revisionOf(s.statefulSet)
	if runs == nil || runs.Name == s.revision.Name {
		return nil
	}
	isServing := slices.ContainsFunc(s.heldMachines(), func(machine capacity.Machine) bool {
		return machine.Initialized && fitsRevision(&machine, runs) && !s.fits(&machine) && !s.isKnown(machine.Name)
	})
	if !isServing {
		return nil
	}
	isFound, err := r.adoptFor(ctx, s, runs)
	if isFound {
		s.attempts.Last().ReadyTime = new(seconds(r.Clock.Now()))
	}
	return err
}

// revisionOf returns the revision that a set was made from, or nil.
func (s *scope) revisionOf(set *appsv1.StatefulSet) *revision {
	if set == nil {
		return nil
	}
	return s.revisions.Named(set.Annotations[v1beta1.AnnotationRevision])
}

// heldAttempt is the attempt whose machines are held beside those of the latest, or nil.
func (s *scope) heldAttempt() *v1beta1.Attempt {
	return s.attempts.OpenNumber(s.held)
}

// keptNames are the names of the machines that are held beside those of the latest attempt.
func (s *scope) keptNames() []string {
	if held := s.heldAttempt(); held != nil {
		return held.NodeClaims
	}
	return nil
}

// isHeld says whether a machine is held beside those of the latest attempt.
func (s *scope) isHeld(name string) bool { return slices.Contains(s.keptNames(), name) }

// going is what is about to be lost, where it is to be left alone then: it is asked for in its own place only
// where nothing else will do.
func (r *Reconciler) going(s *scope) *ladder.Exclusion {
	held, now := s.heldAttempt(), r.Clock.Now()
	if held == nil || s.trouble == "" {
		return nil
	}
	offer := r.offering(held.InstanceType, held.Zone, held.CapacityType, held.NodeClassName)
	lost := r.Answers.Rules.Classify(refusal.Observation{
		Provider: r.Answers.provider(r.classOf(s.revision.NodeClass)), Offering: offer,
		CreatedAt: held.StartTime.Time, GoneAt: now, WasUsable: true,
	}, r.Answers.Deadlines, now)
	past := append(r.remembered(asker(s.ws), s.attempts), refusal.Attempt{
		Asker: asker(s.ws), Offering: offer, Started: held.StartTime.Time, Ended: now,
		Cause: lost.Cause, Scope: lost.Scope, Cooldown: lost.Cooldown, Guessed: lost.Guessed,
	})
	until, cause, isLeft := refusal.NewCooldowns(past).Active(now, asker(s.ws), offer)
	if !isLeft {
		return nil
	}
	return &ladder.Exclusion{Offering: offer, Until: until, Cause: cause}
}

// isExcused says that a machine may be as it is, because others are got in its place and its pods run on.
func (s *scope) isExcused(name string) bool { return s.isHeld(name) && !s.isVacated() }

// heldState is what the ladder is told of the held attempt; nil where there is none.
func (r *Reconciler) heldState(ctx context.Context, s *scope) (*ladder.Held, error) {
	held := s.heldAttempt()
	if held == nil {
		return nil, nil
	}
	machines, err := r.judge(ctx, s, held, held.NodeClaims)
	if err != nil {
		return nil, err
	}
	var verdicts []refusal.Verdict
	for _, machine := range machines {
		verdicts = append(verdicts, machine.Verdict)
	}
	out := &ladder.Held{Verdict: s.verdictOnHeld(held, verdicts), Moved: s.isMoved(), Empty: s.isVacated()}
	out.Overdue = !r.Clock.Now().Before(s.moveDeadline())
	if at := out.Verdict.LookAgain; !out.Verdict.Final && !at.IsZero() {
		s.lookAgain(at.Sub(r.Clock.Now()))
	}
	return out, nil
}

// verdictOnHeld is decisive for machines that serve together. Those that serve by themselves do so until the last is lost.
func (s *scope) verdictOnHeld(held *v1beta1.Attempt, verdicts []refusal.Verdict) refusal.Verdict {
	isFinal := func(v refusal.Verdict) bool { return v.Final }
	if !s.keepsOthers(held) || s.revisionOf(s.statefulSet).IsGroup() {
		return refusal.Decisive(verdicts)
	}
	if standing := slices.DeleteFunc(slices.Clone(verdicts), isFinal); len(standing) > 0 {
		return refusal.Decisive(standing)
	}
	return refusal.Decisive(verdicts)
}

// moveLimit is how long pods may take to move to other machines once yet others are wanted.
const moveLimit = 15 * time.Minute

// moveDeadline is when the pods have had time enough to move to the machines that they select.
func (s *scope) moveDeadline() time.Time {
	if ready, ok := s.attempts.ReadyTime(workload.PinnedAttempt(s.statefulSet)); ok {
		return ready.Add(moveLimit)
	}
	return time.Time{}
}

// isMoved says whether the pods are told to run on other machines than those that are held.
func (s *scope) isMoved() bool { return s.held > 0 && s.movedTo() > s.held }

// isVacated says whether all pods have moved away from the machines that are held.
func (s *scope) isVacated() bool {
	if !s.isMoved() || !s.isRolledOut() {
		return false
	}
	return !slices.ContainsFunc(s.pods, func(pod corev1.Pod) bool {
		return slices.ContainsFunc(s.machines, func(machine capacity.Machine) bool {
			return s.isHeld(machine.Name) && machine.NodeName != "" && machine.NodeName == pod.Spec.NodeName
		})
	})
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

// releaseBut lets go of all machines but those that are held.
func (r *Reconciler) releaseBut(ctx context.Context, s *scope) ([]string, error) {
	surger, isSurger := r.Provisioner.(capacity.Surger)
	if keep := s.keptNames(); isSurger && len(keep) > 0 {
		return surger.ReleaseBut(ctx, s.owner, keep)
	}
	return r.Provisioner.Release(ctx, s.owner)
}

// willDo says whether the machines that are held will do for a plan, so that nothing has to be bought.
func (s *scope) willDo(made *revision) bool {
	held := s.heldAttempt()
	return held != nil && s.trouble == "" && s.has(held, made)
}

// isOfHeld says whether a plan asks for machines like those that are held.
func (s *scope) isOfHeld(made *revision) bool {
	held := s.heldAttempt()
	return held != nil && held.InstanceType == made.Plan.InstanceType && held.CapacityType == made.Plan.CapacityType &&
		held.Zone == zoneOf(made.Plan.Zones)
}

// await says what nothing is asked for before.
func (s *scope) await(now time.Time) error {
	if left := s.leaving(); len(left) > 0 || !s.isMoved() {
		return s.awaitRelease(left)
	}
	return &progress.WaitingError{
		Message: "waiting for the pods to leave the old machines", After: max(s.moveDeadline().Sub(now), shortestLook),
	}
}

// serveOn has the pods that serve be looked after, whatever keeps machines from being got beside theirs.
func (s *scope) serveOn(err error) error {
	var after time.Duration
	if wait, ok := errors.AsType[*progress.WaitingError](err); ok {
		if after = wait.After; wait.IsBrief {
			after = conflictDelay
		}
	} else if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
		after = stalled.RetryAfter
	} else {
		return err
	}
	if after > 0 {
		s.lookAgain(after)
	}
	return nil
}
