// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"slices"
)

// Escalate turns a second machine type whose GPUs never showed into what it is: not the machines are
// at fault but what makes GPUs usable in this cluster. The attempts are those of one Workspace, or
// of all that use one node class, in any order. One that got its machine clears the suspicion, and
// so does one that was called Misconfigured: somebody has acted since.
func Escalate(v Verdict, attempts []Attempt) Verdict {
	if v.Cause != NeverInitialized || !v.Final {
		return v
	}
	past := slices.Clone(attempts)
	slices.SortFunc(past, func(a, b Attempt) int { return -compareAttempts(a, b) })
	for _, attempt := range past {
		if attempt.Ended.IsZero() {
			continue // it goes on
		}
		if attempt.Cause == None || attempt.Cause == Misconfigured {
			return v
		}
		if attempt.Cause != NeverInitialized || attempt.Offering.InstanceType == v.Scope.Name {
			continue
		}
		v.Cause, v.Cooldown = Misconfigured, 0
		v.Scope = scopeOf(Everything, Offering{CapacityType: Any})
		v.Message = trim(fmt.Sprintf("GPUs never showed on two machine types, %s before: %s",
			attempt.Offering.InstanceType, v.Message))
		v.Fix = "install a device plugin or GPU operator that tolerates the taint of these nodes"
		return v
	}
	return v
}
