// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/request"
)

// Bounds of text in an attempt, in bytes, and of the recorded messages of one machine, as in the schema.
const (
	messageLimit      = 1024
	fixLimit          = 512
	heardLimit        = 4
	heardMessageLimit = 512
	heardReasonLimit  = 128
)

// Stages of an attempt's machine.
const (
	stageLaunched   = "Launched"
	stageRegistered = "Registered"
	stageUsable     = "Usable"
)

// NoteCreated records the UIDs of machines that were created now.
func NoteCreated(open *v1beta1.Attempt, created []capacity.Created, now time.Time) {
	for _, machine := range created {
		if machine.UID == "" {
			continue // its object does not exist yet
		}
		if claim := entry(open, machine.Name, string(machine.UID)); claim != nil && claim.CreationTime == nil {
			claim.CreationTime = new(Seconds(now))
		}
	}
}

// noteMachine records the stage and the messages of a machine, to explain its end if it vanishes. A replacement counts
// as usable for good once it has had the given number of GPUs.
func noteMachine(open *v1beta1.Attempt, machine *capacity.Machine, gpus int, now time.Time) {
	claim := entry(open, machine.Name, string(machine.UID))
	if claim == nil {
		return
	}
	if claim.CreationTime == nil && !machine.CreatedAt.IsZero() {
		claim.CreationTime = new(Seconds(machine.CreatedAt))
		if claim.CreationTime.Before(&open.StartTime) { // the clocks differ
			claim.CreationTime = new(open.StartTime)
		}
	}
	switch {
	case claim.Stage == stageUsable:
	case open.ReadyTime != nil && !wasUsable(open, claim) && machine.Initialized && machine.GPUs >= gpus:
		claim.Stage = stageUsable
	case machine.Registered || machine.NodeName != "":
		claim.Stage = stageRegistered
	case machine.Launched || machine.ProviderID != "":
		claim.Stage = stageLaunched
	}
	claim.Heard = heard(claim.Heard, machine.Words.Launched, now)
}

// entry returns the claim with that name and UID, and adds it if it is missing; nil if there is no room. If a claim of
// that name has another UID, the machine is a successor, and its record starts again.
func entry(open *v1beta1.Attempt, name, uid string) *v1beta1.AttemptClaim {
	for i := range open.Claims {
		if open.Claims[i].Name != name {
			continue
		}
		if open.Claims[i].UID != uid {
			open.Claims[i] = v1beta1.AttemptClaim{Name: name, UID: uid, Lost: open.Claims[i].Lost}
		}
		return &open.Claims[i]
	}
	if len(open.Claims) >= claimLimit {
		return nil
	}
	open.Claims = append(open.Claims, v1beta1.AttemptClaim{Name: name, UID: uid})
	return &open.Claims[len(open.Claims)-1]
}

// heard appends the message of a machine's Launched condition, if it is new.
func heard(words []v1beta1.AttemptWords, said refusal.Condition, now time.Time) []v1beta1.AttemptWords {
	if said.Status == refusal.StatusTrue || refusal.IsNeutral(said.Reason) {
		return words
	}
	next := v1beta1.AttemptWords{
		Reason: shorten(said.Reason, heardReasonLimit), Message: shorten(said.Message, heardMessageLimit), Time: Seconds(now),
	}
	isSame := func(known v1beta1.AttemptWords) bool {
		return known.Reason == next.Reason && known.Message == next.Message
	}
	if slices.ContainsFunc(words, isSame) {
		return words
	}
	words = append(words, next)
	return words[max(0, len(words)-heardLimit):]
}

// Lose records that a machine is lost while the attempt keeps the others. A machine that the attempt never saw cannot be
// lost.
func Lose(open *v1beta1.Attempt, name string, verdict refusal.Verdict, now time.Time) {
	i := slices.IndexFunc(open.Claims, func(claim v1beta1.AttemptClaim) bool { return claim.Name == name })
	if i < 0 {
		return
	}
	lost := &v1beta1.LostClaim{
		UID: open.Claims[i].UID, CreationTime: open.Claims[i].CreationTime, Time: Seconds(now), Reason: string(verdict.Cause),
		Message: shorten(verdict.Message, heardMessageLimit),
	}
	if verdict.Cooldown > 0 {
		lost.Scope, lost.Cooldown, lost.Guessed = verdict.Scope.String(), &metav1.Duration{Duration: verdict.Cooldown}, verdict.Guessed
	}
	open.Claims[i] = v1beta1.AttemptClaim{Name: name, Lost: lost}
}

// Recall fills an observation with an attempt's record of a machine.
func Recall(seen *refusal.Observation, attempt *v1beta1.Attempt, name string) {
	i := slices.IndexFunc(attempt.Claims, func(claim v1beta1.AttemptClaim) bool { return claim.Name == name })
	if i < 0 {
		return
	}
	claim := &attempt.Claims[i]
	seen.UID = types.UID(claim.UID)
	if claim.CreationTime != nil {
		seen.CreatedAt = claim.CreationTime.Time
	}
	if claim.Stage != "" {
		seen.Launched.Status = refusal.StatusTrue
	}
	if claim.Stage == stageRegistered || claim.Stage == stageUsable {
		seen.Registered.Status = refusal.StatusTrue
	}
	seen.WasUsable = claim.Stage == stageUsable
	for _, words := range claim.Heard {
		seen.Noted = append(seen.Noted, refusal.Note{Reason: words.Reason, Message: words.Message, At: words.Time.Time})
	}
}

// HasLaunched reports whether an attempt has launched a machine other than the named one.
func HasLaunched(attempt *v1beta1.Attempt, but string) bool {
	return slices.ContainsFunc(attempt.Claims, func(claim v1beta1.AttemptClaim) bool { return claim.Stage != "" && claim.Name != but })
}

// Misses reports whether an attempt has bought fewer machines than this number.
func Misses(attempt *v1beta1.Attempt, machines int) bool {
	bought := 0
	for i := range attempt.Claims {
		if attempt.Claims[i].UID != "" {
			bought++
		}
	}
	return bought < machines
}

// wasInReady reports whether a machine with that creation time was there when the attempt became ready.
func wasInReady(attempt *v1beta1.Attempt, created time.Time) bool {
	return attempt.ReadyTime != nil && !created.After(attempt.ReadyTime.Time)
}

// wasUsable reports whether a recorded machine of an attempt was ever usable, as one of the first machines or as a
// replacement.
func wasUsable(attempt *v1beta1.Attempt, claim *v1beta1.AttemptClaim) bool {
	return claim.Stage == stageUsable || claim.CreationTime != nil && wasInReady(attempt, claim.CreationTime.Time)
}

// Seconds is a time as the API server stores it.
func Seconds(at time.Time) metav1.Time { return metav1.NewTime(at).Rfc3339Copy() }

func shorten(text string, limit int) string { return request.Shorten(text, limit) }
