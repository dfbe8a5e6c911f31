// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"slices"
	"strings"
)

// Fixes if the machines may not be the cause.
const (
	devicePluginFix = "install a device plugin or GPU operator that tolerates the taint of these nodes"
	requestFix      = "several machine types were refused without a clear reason: check whether the requested disk " +
		"or a requirement of the node class exceeds what these types offer"
)

// Escalate changes the cause once GPUs never appeared on a second machine type: the cluster is then at fault, not the
// machines. attempts are the attempts of one Workspace, or of all Workspaces with one node class, in any order. An
// attempt with a usable machine clears the suspicion. So does an attempt with Misconfigured, because somebody has
// acted since. If several machine types vanish without a clear reason, the cause remains a guess, but the fix names
// the request as a suspect.
func Escalate(v Verdict, attempts []Attempt) Verdict {
	if v.Guessed && v.Final && v.Cause == NoCapacity {
		return suspect(v, attempts)
	}
	if v.Cause != NeverInitialized || !v.Final {
		return v
	}
	for _, attempt := range newestFirst(attempts) {
		if attempt.Ended.IsZero() {
			continue // it is still open
		}
		if attempt.Cause == None || attempt.Cause == Misconfigured {
			return v
		}
		if attempt.Cause != NeverInitialized || attempt.Offering.InstanceType == v.Scope.Name {
			continue
		}
		v.Cause, v.Cooldown = Misconfigured, 0
		v.Scope = scopeOf(Everything, OfAccount, Offering{CapacityType: Any})
		v.Message = trim(fmt.Sprintf("nodes of two machine types never advertised their GPUs; the first was %s: %s",
			attempt.Offering.InstanceType, v.Message))
		v.Fix = devicePluginFix
		return v
	}
	return v
}

// suspect names the request as a possible cause once a second machine type vanishes.
func suspect(v Verdict, attempts []Attempt) Verdict {
	for _, attempt := range newestFirst(attempts) {
		switch {
		case attempt.Ended.IsZero():
		case !attempt.Guessed || attempt.Cause != NoCapacity:
			return v // there was a machine, or a clear message, since
		case attempt.Offering.InstanceType != v.Scope.Name:
			v.Fix = strings.TrimPrefix(v.Fix+"; "+requestFix, "; ")
			return v
		}
	}
	return v
}

func newestFirst(attempts []Attempt) []Attempt {
	out := slices.Clone(attempts)
	slices.SortFunc(out, func(a, b Attempt) int { return -compareAttempts(a, b) })
	return out
}
