// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/request"
)

// An attempt that got its machines keeps them when one is lost: capacity that is scarce is not given back while it may
// be of use. The attempt writes down which machine is lost, lets go of that one alone, and asks for another one by the same
// name once it is gone.

// keepsOthers says whether one machine of an attempt is replaced without the others.
func (s *scope) keepsOthers(attempt *v1beta1.Attempt) bool {
	return s.replaces != capacity.ReplacesNone && attempt.ReadyTime != nil && attempt.Reason == "" && len(attempt.NodeClaims) > 1
}

// lostMachines are the UIDs of the machines that open attempts have lost while they keep the others.
func (s *scope) lostMachines() []types.UID {
	var out []types.UID
	for _, open := range s.openAttempts() {
		for i := range open.Claims {
			if lost := open.Claims[i].Lost; lost != nil {
				out = append(out, types.UID(lost.UID))
			}
		}
	}
	return out
}

// replaceLost writes into the open attempt which of its machines are lost.
func (r *Reconciler) replaceLost(ctx context.Context, s *scope) error {
	open := s.openAttempt()
	names, err := r.Provisioner.Names(s.owner, open.Number, s.revision.Plan.Nodes)
	if err != nil {
		return err
	}
	machines, err := r.judge(ctx, s, open, names)
	if err != nil {
		return err
	}
	for i, name := range names {
		if verdict := machines[i].Verdict; verdict.Final {
			s.lose(open, name, verdict, r.Clock.Now())
			log.FromContext(ctx).Info("a machine was refused or lost, the others are kept", "attempt", open.Number,
				"nodeClaim", name, "cause", verdict.Cause, "words", verdict.Message, "rule", verdict.Rule)
		}
	}
	return nil
}

// lose writes down that a machine of an attempt is lost.
func (s *scope) lose(open *v1beta1.Attempt, name string, verdict refusal.Verdict, now time.Time) {
	i := slices.IndexFunc(open.Claims, func(claim v1beta1.AttemptClaim) bool { return claim.Name == name })
	if i < 0 {
		return // it never was there
	}
	lost := &v1beta1.LostClaim{
		UID: open.Claims[i].UID, CreationTime: open.Claims[i].CreationTime, Time: seconds(now), Reason: string(verdict.Cause),
		Message: request.Shorten(verdict.Message, heardMessageLimit),
	}
	if verdict.Cooldown > 0 {
		lost.Scope, lost.Cooldown, lost.Guessed = verdict.Scope.String(), &metav1.Duration{Duration: verdict.Cooldown}, verdict.Guessed
	}
	open.Claims[i] = v1beta1.AttemptClaim{Name: name, Lost: lost}
}

// lostOf are the machines that an attempt lost while it kept the others, as the memory of refusals takes them.
func lostOf(a *v1beta1.Attempt, known refusal.Attempt) []refusal.Attempt {
	var out []refusal.Attempt
	for i := range a.Claims {
		lost := a.Claims[i].Lost
		if lost == nil {
			continue
		}
		ended := known
		if lost.CreationTime != nil { // one that was asked for after another was refused is refused anew
			ended.Started = lost.CreationTime.Time
		}
		ended.Ended, ended.Cause = lost.Time.Time, refusal.Cause(lost.Reason)
		if scope, err := refusal.ParseScope(lost.Scope); err == nil && lost.Cooldown != nil {
			ended.Scope, ended.Cooldown, ended.Guessed = scope, lost.Cooldown.Duration, lost.Guessed
		}
		out = append(out, ended)
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
	if i < 0 || s.revision.isGroup() || s.isRetry() {
		return nil
	}
	now, lost := r.Clock.Now(), open.Claims[i].Lost
	offer := r.offering(open.InstanceType, open.Zone, open.CapacityType, open.NodeClassName)
	excluded := r.Memory.Exclusions(now, asker(s.ws), slices.Values([]refusal.Offering{offer}))
	if len(excluded) == 0 {
		return nil
	}
	return &waitingError{
		reason: lost.Reason,
		message: fmt.Sprintf("%s: %s; the other machines stay, and the next purchase is after %s",
			open.Claims[i].Name, lost.Message, clockTime(excluded[0].Until)),
		after: max(excluded[0].Until.Sub(now), shortestLook),
	}
}

// losses tells which machines were lost between two statuses while the others were kept.
func losses(before, after []v1beta1.Attempt) []event {
	var events []event
	for i := range after {
		for _, claim := range after[i].Claims {
			if claim.Lost == nil || after[i].Reason != "" || wasLost(before, claim.Lost) {
				continue
			}
			events = append(events, event{warning: true, reason: claim.Lost.Reason, message: fmt.Sprintf(
				"attempt %d, %s: %s: %s; the other machines stay", after[i].Number, after[i].InstanceType, claim.Name, claim.Lost.Message)})
		}
	}
	return events
}

func wasLost(before []v1beta1.Attempt, lost *v1beta1.LostClaim) bool {
	return slices.ContainsFunc(before, func(a v1beta1.Attempt) bool {
		return slices.ContainsFunc(a.Claims, func(claim v1beta1.AttemptClaim) bool {
			return equality.Semantic.DeepEqual(claim.Lost, lost)
		})
	})
}
