// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Offer returns the offering of an attempt's request.
type Offer func(attempt *v1beta1.Attempt) refusal.Offering

// Remember converts attempts for the memory of refusals. An attempt that got its machines and lost them later becomes
// two entries: a success and a loss.
func Remember(who refusal.Asker, attempts []v1beta1.Attempt, offer Offer) []refusal.Attempt {
	var out []refusal.Attempt
	for i := range attempts {
		a := &attempts[i]
		known := refusal.Attempt{Asker: who, Offering: offer(a), Started: a.StartTime.Time}
		switch {
		case a.ReadyTime != nil:
			got := known
			got.Ended = a.ReadyTime.Time
			out = append(out, got)
		case a.Reason == "":
			pending := known
			pending.Launched = HasLaunched(a, "")
			out = append(out, pending)
		}
		out = append(out, losses(a, known)...)
		if a.EndTime != nil && teaches(a.Reason) {
			known.Ended, known.Cause = a.EndTime.Time, refusal.Cause(a.Reason)
			if scope, err := refusal.ParseScope(a.Scope); err == nil && a.Cooldown != nil {
				known.Scope, known.Cooldown, known.Guessed = scope, a.Cooldown.Duration, a.Guessed
			}
			out = append(out, known)
		}
	}
	return out
}

// teaches reports whether the end of an attempt is evidence about its offering.
func teaches(reason string) bool {
	return reason != "" && reason != v1beta1.ReasonReleased && reason != v1beta1.ReasonCannotServe
}

// losses returns one entry for each machine that an attempt lost while it kept the others.
func losses(a *v1beta1.Attempt, known refusal.Attempt) []refusal.Attempt {
	var out []refusal.Attempt
	for i := range a.Claims {
		lost := a.Claims[i].Lost
		if lost == nil {
			continue
		}
		ended := known
		if lost.CreationTime != nil { // a replacement is requested later than the attempt
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
