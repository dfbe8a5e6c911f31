// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/request"
)

// Bounds of what the status says about attempts, as in the schema.
const (
	attemptLimit        = 10
	attemptClaimLimit   = 1000
	endedClaimLimit     = 64
	attemptMessageLimit = 1024
	attemptFixLimit     = 512
	heardLimit          = 4
	heardMessageLimit   = 512
	heardReasonLimit    = 128
	retryLimit          = 64
)

// reasonReleased ends an attempt whose machines were let go by us. Every other reason is a
// refusal.Cause.
const reasonReleased = "Released"

// Stages that a machine of an attempt reached.
const (
	stageLaunched   = "Launched"
	stageRegistered = "Registered"
)

// lastAttempt returns the newest attempt as it stands in this pass, or nil.
func (s *scope) lastAttempt() *v1beta1.Attempt {
	if count := len(s.attempts); count > 0 {
		return &s.attempts[count-1]
	}
	return nil
}

// openAttempt returns the attempt that goes on or has its machines, or nil. One that is held beside it
// does not count.
func (s *scope) openAttempt() *v1beta1.Attempt {
	for i := len(s.attempts) - 1; i >= 0; i-- {
		if a := &s.attempts[i]; a.Reason == "" && a.Number != s.held {
			return a
		}
	}
	return nil
}

// openAttempts are all that are open, oldest first.
func (s *scope) openAttempts() []*v1beta1.Attempt {
	var open []*v1beta1.Attempt
	for i := range s.attempts {
		if s.attempts[i].Reason == "" {
			open = append(open, &s.attempts[i])
		}
	}
	return open
}

// latestAttempt is the open one, else the last that was begun beside the one that is held, or nil.
func (s *scope) latestAttempt() *v1beta1.Attempt {
	if open := s.openAttempt(); open != nil {
		return open
	}
	if last := s.lastAttempt(); last != nil && last.Reason != "" {
		return last
	}
	return nil
}

// nextNumber is the number of the next attempt.
func (s *scope) nextNumber() int32 {
	if last := s.lastAttempt(); last != nil {
		return last.Number + 1
	}
	return 1
}

// begin opens an attempt for a plan.
func (s *scope) begin(made *revision, number int32, names []string, start time.Time) {
	plan := &made.Plan
	s.attempts = append(s.attempts, v1beta1.Attempt{
		Number:       number,
		InstanceType: plan.InstanceType,
		NodeClaims:   names[:min(len(names), attemptClaimLimit)],
		Zone:         zoneOf(plan.Zones),
		CapacityType: plan.CapacityType,
		Retry:        s.retry(),
		StartTime:    seconds(start),
		Revision:     made.Name,
	})
	for over := len(s.attempts) - attemptLimit; over > 0; over-- {
		oldest := slices.IndexFunc(s.attempts, func(a v1beta1.Attempt) bool { return a.Reason != "" })
		s.attempts = slices.Delete(s.attempts, max(oldest, 0), max(oldest, 0)+1)
	}
}

// begin opens an attempt for a plan, with the node class that its machines are bought with.
func (r *Reconciler) begin(s *scope, made *revision, number int32, names []string, start time.Time) {
	s.begin(made, number, names, start)
	s.lastAttempt().NodeClassName = r.classOf(made.NodeClass).Name
}

// end closes the open attempt, if there is one.
func (s *scope) end(verdict refusal.Verdict, now time.Time) {
	if open := s.openAttempt(); open != nil {
		s.close(open, verdict, now)
	}
}

func (s *scope) close(last *v1beta1.Attempt, verdict refusal.Verdict, now time.Time) {
	ended := seconds(now)
	last.EndTime, last.Generation = &ended, s.ws.Generation
	last.Reason = string(verdict.Cause)
	last.Message = request.Shorten(verdict.Message, attemptMessageLimit)
	last.Fix = request.Shorten(verdict.Fix, attemptFixLimit)
	last.MendedBy, last.NodeClass = string(verdict.MendedBy), string(verdict.Class)
	// They tell what is needed to judge it, which is done, but for what others are to learn from.
	last.Claims = slices.DeleteFunc(last.Claims, func(claim v1beta1.AttemptClaim) bool { return claim.Lost == nil })
	last.NodeClaims = last.NodeClaims[:min(len(last.NodeClaims), endedClaimLimit)]
	if verdict.Cooldown > 0 {
		last.Scope = verdict.Scope.String()
		last.Cooldown = &metav1.Duration{Duration: verdict.Cooldown}
		last.Guessed = verdict.Guessed
	}
}

// letGo closes the open attempt because its machines are not wanted any more.
func (s *scope) letGo(why string, now time.Time) {
	s.end(refusal.Verdict{Cause: reasonReleased, Message: why}, now)
}

// letAllGo closes all open attempts.
func (s *scope) letAllGo(why string, now time.Time) {
	for _, open := range s.openAttempts() {
		s.close(open, refusal.Verdict{Cause: reasonReleased, Message: why}, now)
	}
}

// zoneOf is the place that a request names: what it leaves to the provisioner is a place of its own.
func zoneOf(zones []string) string {
	return strings.Join(slices.Sorted(slices.Values(zones)), ",")
}

// seconds is a time as it comes back from the API server.
func seconds(at time.Time) metav1.Time {
	return metav1.NewTime(at).Rfc3339Copy()
}

// noteCreated keeps the UIDs of machines that were asked for, and since when they are there.
func (s *scope) noteCreated(created []capacity.Created, now time.Time) {
	for _, machine := range created {
		if machine.UID == "" {
			continue // its object is still to be made
		}
		if claim := s.noteClaim(machine.Name, string(machine.UID)); claim != nil && claim.CreationTime == nil {
			claim.CreationTime = new(seconds(now))
		}
	}
}

// knownMachines are those that were seen of attempts that go on.
func (s *scope) knownMachines() []capacity.Created {
	var out []capacity.Created
	for _, open := range s.openAttempts() {
		for _, claim := range open.Claims {
			if claim.UID != "" {
				out = append(out, capacity.Created{Name: claim.Name, UID: types.UID(claim.UID)})
			}
		}
	}
	return out
}

// notedMachines are those that are known, and those that were lost.
func (s *scope) notedMachines() []capacity.Created {
	out := s.knownMachines()
	for _, open := range s.openAttempts() {
		for _, claim := range open.Claims {
			if lost := claim.Lost; lost != nil {
				out = append(out, capacity.Created{Name: claim.Name, UID: types.UID(lost.UID), LostAt: lost.Time.Time})
			}
		}
	}
	return out
}

// hasBeen says whether a machine of an attempt that goes on is known to have been made.
func (s *scope) hasBeen(name string) bool {
	return slices.ContainsFunc(s.knownMachines(), func(known capacity.Created) bool { return known.Name == name })
}

// noteMachines keeps what will explain the machines of the open attempt, should they vanish.
func (s *scope) noteMachines(names []string, now time.Time) {
	lost := s.lostMachines()
	for i := range s.machines {
		machine := &s.machines[i]
		if !slices.Contains(names, machine.Name) || machine.UID == "" || slices.Contains(lost, machine.UID) {
			continue
		}
		claim := s.noteClaim(machine.Name, string(machine.UID))
		if claim == nil {
			continue
		}
		if claim.CreationTime == nil && !machine.CreatedAt.IsZero() {
			claim.CreationTime = new(seconds(machine.CreatedAt))
			if start := s.openAttempt().StartTime; claim.CreationTime.Before(&start) { // the clocks differ
				claim.CreationTime = &start
			}
		}
		switch {
		case machine.Registered || machine.NodeName != "":
			claim.Stage = stageRegistered
		case machine.Launched || machine.ProviderID != "":
			claim.Stage = stageLaunched
		}
		claim.Heard = heard(claim.Heard, machine.Words.Launched, now)
	}
}

// noteClaim returns the entry of a claim in the open attempt; nil where there is no room for one.
func (s *scope) noteClaim(name, uid string) *v1beta1.AttemptClaim {
	last := s.openAttempt()
	if last == nil {
		return nil
	}
	for i := range last.Claims {
		if last.Claims[i].Name == name {
			if last.Claims[i].UID != uid {
				last.Claims[i] = v1beta1.AttemptClaim{Name: name, UID: uid, Lost: last.Claims[i].Lost}
			}
			return &last.Claims[i]
		}
	}
	if len(last.Claims) == attemptClaimLimit {
		return nil
	}
	last.Claims = append(last.Claims, v1beta1.AttemptClaim{Name: name, UID: uid})
	return &last.Claims[len(last.Claims)-1]
}

// heard adds what is said about a launch, if it is new.
func heard(words []v1beta1.AttemptWords, said refusal.Condition, now time.Time) []v1beta1.AttemptWords {
	if said.Status == refusal.StatusTrue || refusal.IsNeutral(said.Reason) {
		return words
	}
	next := v1beta1.AttemptWords{
		Reason: request.Shorten(said.Reason, heardReasonLimit), Message: request.Shorten(said.Message, heardMessageLimit),
		Time: seconds(now),
	}
	for _, known := range words {
		if known.Reason == next.Reason && known.Message == next.Message {
			return words
		}
	}
	words = append(words, next)
	return words[max(0, len(words)-heardLimit):]
}

// persist writes the attempts, if they changed. Nothing is bought and nothing let go before the
// status tells why. A pass that started from an old Workspace fails to write; one that has nothing to
// write is stopped by confirm.
func (r *Reconciler) persist(ctx context.Context, s *scope) error {
	if s.isFirstAttempt() || equality.Semantic.DeepEqual(s.ws.Status.Attempts, s.attempts) {
		return nil
	}
	before := s.ws.DeepCopy()
	s.ws.Status.Attempts = cloneAttempts(s.attempts)
	if err := r.patchStatus(ctx, before, s.ws); err != nil {
		s.ws.Status.Attempts = before.Status.Attempts
		r.learnUnanswered(err, asker(s.ws), before.Status.Attempts, s.attempts)
		return fmt.Errorf("writing the attempts down: %w", err)
	}
	s.persisted = true
	r.emit(s, refusals(before.Status.Attempts, s.attempts))
	r.noteAttempts(asker(s.ws), before.Status.Attempts, s.attempts)
	r.Metrics.waste(s)
	return nil
}

// isFirstAttempt says that nothing was ever asked for before this pass. The report writes such an attempt down, that of the next pass
// where others wait: the revision is pinned, the names of its machines follow from their Workspace alone, and it would tell no more than
// they do.
func (s *scope) isFirstAttempt() bool {
	return s.isNew && len(s.ws.Status.Attempts) == 0 && len(s.attempts) == 1 && s.attempts[0].Number == 1 && len(s.machines) == 0
}

func cloneAttempts(attempts []v1beta1.Attempt) []v1beta1.Attempt {
	return (&v1beta1.WorkspaceStatus{Attempts: attempts}).DeepCopy().Attempts
}
