// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/progress"
)

// An attempt that got its machines keeps them when one is lost: capacity that is scarce is not given back while it may
// be of use. The attempt writes down which machine is lost, lets go of that one alone, and asks for another one by the same
// name once it is gone.

// keepsOthers says whether one machine of an attempt is replaced without the others. Pods of a group ask for its machines
// together.
func (s *scope) keepsOthers(attempt *v1beta1.Attempt) bool {
	if s.replaces == capacity.ReplacesPod && s.revision.IsGroup() {
		return false
	}
	return s.replaces != capacity.ReplacesNone && attempt.ReadyTime != nil && attempt.Reason == "" && len(attempt.NodeClaims) > 1
}

// replaceLost writes into the open attempt which of its machines are lost, and says whether that is all of this pass. Where
// machines come for pods, the machine stays the same: its pod is deleted, and the next one waits for another node.
func (r *Reconciler) replaceLost(ctx context.Context, s *scope) (isOver bool, err error) {
	open := s.openAttempt()
	names, err := r.Provisioner.Names(s.owner, open.Number, s.revision.Plan.Nodes)
	if err != nil {
		return true, err
	}
	machines, err := r.judge(ctx, s, open, names)
	if err != nil {
		return true, err
	}
	if s.replaces == capacity.ReplacesPod {
		return true, r.deletePods(ctx, s, s.lostPods(machines), "its machine is lost, and the others are kept")
	}
	for i, name := range names {
		if verdict := machines[i].Verdict; verdict.Final {
			acquire.Lose(open, name, verdict, r.Clock.Now())
			log.FromContext(ctx).Info("a machine was refused or lost, the others are kept", "attempt", open.Number,
				"nodeClaim", name, "cause", verdict.Cause, "words", verdict.Message, "rule", verdict.Rule)
		}
	}
	return false, nil
}

// lostPods are those on lost machines; the machines are in the order of their ordinals. A pod without a machine is left to
// wait, whatever its autoscaler said: the others serve meanwhile.
func (s *scope) lostPods(machines []ladder.Machine) []group.Leaving {
	var out []group.Leaving
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.Spec.NodeName == "" || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		for ordinal := range machines {
			if machines[ordinal].Verdict.Final && pod.Name == fmt.Sprintf("%s-%d", s.ws.Name, ordinal) {
				out = append(out, group.Leaving{Name: pod.Name, UID: pod.UID})
			}
		}
	}
	return out
}

// mayAskAgain says whether another machine may be asked for at once after a verdict.
func (r *Reconciler) mayAskAgain(s *scope, verdict refusal.Verdict, offer refusal.Offering, past []refusal.Attempt) bool {
	now := r.Clock.Now()
	past = append(slices.Clone(past), refusal.Attempt{
		Asker: asker(s.ws), Offering: offer, Started: now, Ended: now,
		Cause: verdict.Cause, Scope: verdict.Scope, Cooldown: verdict.Cooldown, Guessed: verdict.Guessed,
	})
	_, _, isCooling := refusal.NewCooldowns(past).Active(now, asker(s.ws), offer)
	return verdict.Cause != refusal.Misconfigured && !isCooling
}

// awaitReplacements says until when no machine is asked for in place of a lost one. Those of a group were asked for at once or
// not at all.
func (r *Reconciler) awaitReplacements(s *scope, open *v1beta1.Attempt) error {
	isLost := func(claim v1beta1.AttemptClaim) bool { return claim.UID == "" && claim.Lost != nil }
	i := slices.IndexFunc(open.Claims, isLost)
	if i < 0 || s.revision.IsGroup() || s.isRetry() {
		return nil
	}
	now, lost := r.Clock.Now(), open.Claims[i].Lost
	offer := r.offering(open.InstanceType, open.Zone, open.CapacityType, open.NodeClassName)
	excluded := r.Memory.Exclusions(now, asker(s.ws), slices.Values([]refusal.Offering{offer}))
	if len(excluded) == 0 {
		return nil
	}
	return &progress.WaitingError{
		Reason: lost.Reason,
		Message: fmt.Sprintf("%s: %s; the other machines stay, and the next purchase is after %s",
			open.Claims[i].Name, lost.Message, clockTime(excluded[0].Until)),
		After: max(excluded[0].Until.Sub(now), shortestLook),
	}
}
