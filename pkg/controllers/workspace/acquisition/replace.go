// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/progress"
)

// An attempt that has lost a machine keeps the others: scarce capacity is not returned while it may be useful. The
// attempt records the lost machine, releases only that one, and requests a replacement of the same name once it is
// gone.

// replaceLost records the lost machines of the open attempt, and reports whether the pass is over. If an autoscaler
// buys machines for pods, replaceLost deletes the pod of the lost machine, and the next pod of that name waits for
// another node. If a lost machine may not be bought again, and another plan's machines cannot be acquired beside the
// remaining machines, the attempt ends in favor of another plan.
func (e *Executor) replaceLost(ctx context.Context, s *scope.Scope, lost []acquire.Machine) (isOver bool, err error) {
	open := s.OpenAttempt()
	if s.Surge.Replaces == capacity.ReplacesPod {
		leaving := lostPods(s, lost)
		s.IsRolling = s.IsRolling || len(leaving) > 0
		return true, e.Effects.DeletePods(ctx, s.Workspace.Namespace, leaving, "its machine is lost, and the others are kept")
	}
	for _, machine := range lost {
		verdict := machine.Verdict
		acquire.Lose(open, machine.Name, verdict, e.Clock.Now())
		log.FromContext(ctx).Info("a machine was refused or lost; the others are kept", "attempt", open.Number,
			"nodeClaim", machine.Name, "cause", verdict.Cause, "words", verdict.Message, "rule", verdict.Rule)
	}
	why := e.Snapshot(s).Irreplaceable(open)
	if why == "" || s.Surge.IsPossible { // another plan's machines can be acquired in addition to the remaining ones
		return false, nil
	}
	choice := e.Choice(s)
	made, err := choice.Elsewhere(ctx)
	if err == nil && !made.IsOnNodes() {
		err = choice.CheckMonth(ctx, made, s.Attempts.NextNumber())
	}
	_, isStalled := errors.AsType[*progress.StalledError](err)
	if isStalled || progress.IsWaiting(err) {
		return false, nil // no other plan can be bought: the remaining machines serve
	}
	if err == nil {
		s.EndAttempt(acquire.Released("the machines were released for another plan: "+why), e.Clock.Now())
	}
	return err != nil, err
}

// lostPods returns the pods on lost machines. A pod without a node stays and waits, whatever its autoscaler reported:
// the other pods serve meanwhile.
func lostPods(s *scope.Scope, lost []acquire.Machine) []group.Leaving {
	var out []group.Leaving
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Spec.NodeName == "" || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		for _, machine := range lost {
			if pod.Name == fmt.Sprintf("%s-%d", s.Workspace.Name, machine.Ordinal) {
				out = append(out, group.Leaving{Name: pod.Name, UID: pod.UID})
			}
		}
	}
	return out
}

// awaitReplacements returns a *progress.WaitingError while a cooldown delays the replacement of a lost machine. A group
// and a retry do not wait.
func (e *Executor) awaitReplacements(s *scope.Scope, open *v1beta1.Attempt) error {
	isLost := func(claim v1beta1.AttemptClaim) bool { return claim.UID == "" && claim.Lost != nil }
	i := slices.IndexFunc(open.Claims, isLost)
	if i < 0 || s.Revision.IsGroup() || s.Attempts.IsRetry(s.Workspace) {
		return nil
	}
	now, lost := e.Clock.Now(), open.Claims[i].Lost
	offer := e.Market.Offering(open.InstanceType, open.Zone, open.CapacityType, open.NodeClassName)
	excluded := e.Memory.Exclusions(now, lessons.Asker(s.Workspace), slices.Values([]refusal.Offering{offer}))
	if len(excluded) == 0 {
		return nil
	}
	return &progress.WaitingError{
		Reason: lost.Reason,
		Message: fmt.Sprintf("%s: %s; the other machines stay, and the controller buys a replacement after %s",
			open.Claims[i].Name, lost.Message, progress.Clock(excluded[0].Until)),
		After: max(excluded[0].Until.Sub(now), acquire.ShortestLook),
	}
}
