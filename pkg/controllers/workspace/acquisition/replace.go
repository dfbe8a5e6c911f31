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

// An attempt that got its machines keeps them when one is lost: scarce capacity is not returned while it may be useful.
// The attempt records the lost machine, releases only that one, and requests another one by the same name once it is
// gone.

// replaceLost records the lost machines of the open attempt, and reports whether this pass ends with that. If
// machines come for pods, the machine's name stays: its pod is deleted, and the next one waits for another node. If
// machines of the type may no longer be bought, and no machine of another plan can join the remaining ones, the attempt
// ends for that plan.
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
	_, err = e.Choice(s).Elsewhere(ctx)
	if _, isStalled := errors.AsType[*progress.StalledError](err); isStalled {
		return false, nil // the rest serves
	}
	if err == nil {
		s.EndAttempt(acquire.Released("the machines were released for another plan: "+why), e.Clock.Now())
	}
	return err != nil, err
}

// lostPods returns the pods on lost machines. A pod without a machine waits, whatever its autoscaler reported: the
// others serve meanwhile.
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

// awaitReplacements returns until when no replacement of a lost machine is requested. Replacements in a group are
// requested at once or not at all.
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
		Message: fmt.Sprintf("%s: %s; the other machines stay, and the controller buys again after %s",
			open.Claims[i].Name, lost.Message, progress.Clock(excluded[0].Until)),
		After: max(excluded[0].Until.Sub(now), acquire.ShortestLook),
	}
}
