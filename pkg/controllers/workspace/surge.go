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

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// A Workspace that serves holds its old and its new plan together: the attempt whose machines serve stays open, while the
// machines of the accepted plan are acquired beside it. At most one attempt serves.

// switchover holds findings about two attempts at once.
type switchover struct {
	acquire.Surge
	// set is the StatefulSet, read live if the cache may lag.
	set *appsv1.StatefulSet
	// isUnrecorded: no attempt records the serving machines. isNeedless: the serving machines are suitable again, so
	// those of the later attempt are not needed.
	isUnrecorded, isNeedless bool
}

// observeSurge finds the serving attempt while the latest acquires its machines. One that fits the accepted plan does
// not count: the attempt beside it is released.
func (r *Reconciler) observeSurge(ctx context.Context, s *scope) (switchover, error) {
	out := switchover{Surge: acquire.Surge{IsGroup: s.revision.IsGroup()}, set: s.statefulSet}
	if surger, isSurger := r.Provisioner.(capacity.Surger); isSurger {
		out.IsPossible, out.Replaces = surger.CanSurge(s.owner), surger.Replaces(s.owner)
	}
	if !out.IsPossible || s.statefulSet == nil || s.isOnNodes() || s.recreates != "" {
		return out, nil
	}
	open := s.attempts.Open()
	if len(open) == 0 {
		out.isUnrecorded = len(s.unrecorded()) > 0
		return out, nil
	}
	first, last := open[0], open[len(open)-1]
	oldest, err := r.standing(ctx, s, &out, first, last)
	switch {
	case err != nil:
		return out, err
	case oldest.IsHeld():
		out.Serving = first.Number
	case first != last:
		if err := r.awaitNodes(ctx, s, first); err != nil {
			return out, err
		}
		out.isNeedless = true
	}
	return out, nil
}

// awaitNodes returns an error while the cache lags behind the nodes of an attempt: the trouble for which others are
// acquired may not show yet.
func (r *Reconciler) awaitNodes(ctx context.Context, s *scope, of *v1beta1.Attempt) error {
	for _, machine := range s.machines.Of(of) {
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

// standing is how the first of the open attempts stands. It completes the switchover.
func (r *Reconciler) standing(ctx context.Context, s *scope, of *switchover, first, last *v1beta1.Attempt) (acquire.Open, error) {
	isWanted, err := r.isWantedOf(s, first)
	if err != nil {
		return acquire.Open{}, err
	}
	of.Trouble = cmp.Or(s.troubleOf(&of.Surge, first, first == last, r.Clock.Now()), r.irreplaceable(s, &of.Surge, first))
	// Trouble goes with its node: machines without one are unsuitable, whatever else is known about them.
	answering := slices.DeleteFunc(s.machines.Of(first), func(machine capacity.Machine) bool { return !machine.NodeReady })
	isWhole := first == last || len(answering) >= min(s.revision.Plan.Nodes, len(first.NodeClaims))
	of.set, err = r.pinnedSet(ctx, s, first, last)
	return acquire.Open{
		Ready: first.ReadyTime != nil, Wanted: isWanted && isWhole && of.Trouble == "", Moved: s.pinnedTo(of.set) > first.Number,
	}, err
}

// isWantedOf reports whether an attempt's machines fit the plan.
func (r *Reconciler) isWantedOf(s *scope, attempt *v1beta1.Attempt) (bool, error) {
	names, err := r.Provisioner.Names(s.owner, attempt.Number, s.revision.Plan.Nodes)
	return err == nil && s.machines.AreWanted(attempt, names, &s.revision.Revision), err
}

// troubleOf says which machine of an attempt is broken or about to be taken back, and has been for too long to
// mend by itself; empty where none is. While an attempt is alone and does not serve, a broken machine is replaced by
// itself. Once another attempt has begun, the trouble for which it began stays: its machines would be released, and
// the broken one be lost after that.
func (s *scope) troubleOf(surge *acquire.Surge, attempt *v1beta1.Attempt, isAlone bool, now time.Time) string {
	serves := s.revisionOf(s.statefulSet).IsGroup() && s.isServing(now)
	if isAlone && surge.KeepsOthers(attempt) && !serves {
		return ""
	}
	return s.machines.Of(attempt).Trouble(now)
}

// irreplaceable explains why no machine may be bought for one that an attempt lost while it kept the others; empty if
// one may, or none was lost. The others serve until another plan has its machines.
func (r *Reconciler) irreplaceable(s *scope, surge *acquire.Surge, attempt *v1beta1.Attempt) string {
	if !surge.KeepsOthers(attempt) || attempt.Revision != s.revision.Name || !acquire.Misses(attempt, s.revision.Plan.Nodes) {
		return ""
	}
	if _, forbidden := r.choice(s).Today(s.revision); forbidden != "" {
		return fmt.Sprintf("a lost %s may not be bought again: %s", s.revision.Plan.InstanceType, forbidden)
	}
	return ""
}

// pinnedSet returns the StatefulSet, which pins the pods to an attempt's machines. It is read live before the
// machines of the later attempt count as unused: the cache may lag.
func (r *Reconciler) pinnedSet(ctx context.Context, s *scope, first, last *v1beta1.Attempt) (*appsv1.StatefulSet, error) {
	shown := s.statefulSet
	if s.pinnedTo(shown) > first.Number || first == last || last.ReadyTime == nil {
		return shown, nil
	}
	if isWanted, err := r.isWantedOf(s, last); err != nil || isWanted {
		return shown, err
	}
	newest := &appsv1.StatefulSet{}
	if err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(shown), newest)); err != nil {
		return shown, fmt.Errorf("reading StatefulSet %s: %w", shown.Name, err)
	}
	if newest.UID != "" && newest.ResourceVersion != shown.ResourceVersion {
		return newest, nil
	}
	return shown, nil
}

// unrecorded returns the names of machines that serve another plan than the accepted one, if the status has lost
// their attempt: they would count as strays.
func (s *scope) unrecorded() []string {
	runs := s.revisionOf(s.statefulSet)
	if len(s.attempts.Open()) > 0 || runs == nil || runs.Name == s.revision.Name {
		return nil
	}
	var names []string
	for _, machine := range s.machines.Standing() {
		isOther := acquire.Fits(&machine, &runs.Revision) && !acquire.Fits(&machine, &s.revision.Revision)
		if machine.Initialized && isOther && !s.isKnown(machine.Name) {
			names = append(names, machine.Name)
		}
	}
	return names
}

// servingState returns the inputs about the serving attempt; nil if there is none.
func (r *Reconciler) servingState(ctx context.Context, s *scope) (*acquire.Held, error) {
	serving := s.heldAttempt()
	if serving == nil {
		return nil, nil
	}
	machines, err := r.judge(ctx, s, serving, serving.NodeClaims)
	if err != nil {
		return nil, err
	}
	var verdicts []refusal.Verdict
	for _, machine := range machines {
		verdicts = append(verdicts, machine.Verdict)
	}
	verdict := s.surge.Verdict(serving, s.revisionOf(s.statefulSet).IsGroup(), verdicts)
	if at := verdict.LookAgain; !verdict.Final && !at.IsZero() {
		s.lookAgain(at.Sub(r.Clock.Now()))
	}
	isOverdue := !r.Clock.Now().Before(s.moveDeadline())
	return &acquire.Held{Verdict: verdict, Moved: s.isMoved(), Empty: s.isVacated(), Overdue: isOverdue}, nil
}

// moveLimit is how long pods may take to move to other machines once yet others are wanted.
const moveLimit = 15 * time.Minute

// serveOn keeps the serving pods in order, whatever prevents the purchase of further machines.
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
