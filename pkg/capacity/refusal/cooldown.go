// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Bounds of repeated refusals.
const (
	// MaxCooldown is the limit of doubling. The first cooldown of a cause may be longer.
	MaxCooldown = 4 * time.Hour
	// mostGuesses limits the doubling of a guess to this multiple of its cooldown: a Workspace with only one suitable
	// machine type needs that type soon after it is available again.
	mostGuesses = 10
	// forgetAfter is how long after a cooldown a further refusal still counts as consecutive.
	forgetAfter = 24 * time.Hour
)

// Cooldown is an excluded scope.
type Cooldown struct {
	Scope Scope
	// Asker is whom the cooldown applies to: one Workspace, all Workspaces of a namespace, or all of them if both
	// fields are empty.
	Asker

	Cause Cause
	Until time.Time
	// Refusals in a row that led to it.
	Refusals int

	refusedAt time.Time
}

// isRemembered reports whether a refusal at that time is one more in a row.
func (c Cooldown) isRemembered(then time.Time) bool {
	return c.Refusals > 0 && then.Sub(c.Until) <= forgetAfter
}

// isUnproven reports whether the cooldown has ended lately and no attempt has got a machine since: the offer's
// availability is unknown.
func (c Cooldown) isUnproven(now time.Time) bool {
	isForgiven := !c.Until.After(c.refusedAt)
	return !isForgiven && !c.Until.After(now) && now.Sub(c.Until) <= forgetAfter
}

// refused returns the cooldown after a further refusal. The zero Cooldown precedes the first refusal.
func (c Cooldown) refused(a Attempt) Cooldown {
	known := c
	switch {
	case !known.isRemembered(a.Ended):
		known = Cooldown{Scope: a.Scope, Refusals: 1}
	case !a.Started.Before(known.Until):
		known.Refusals++
	case delay(a, known.Refusals) == 0:
		// The same forgiven refusal, reported twice. An attempt that begins after the first report counts, even if
		// several Workspaces take turns and one is always in progress.
		known.refusedAt = a.Ended
		return known
	default: // the attempt began before that cooldown ended: the same refusal, reported twice
	}
	known.refusedAt = a.Ended
	if until := a.Ended.Add(delay(a, known.Refusals)); !until.Before(known.Until) {
		known.Until, known.Cause = until, a.Cause
	}
	return known
}

// delay returns how long an attempt's scope is excluded after this many refusals in a row.
func delay(a Attempt, refusals int) time.Duration {
	spot := a.Offering.CapacityType == v1beta1.CapacitySpot
	doublings := refusals - 1 - forgiven(a.Cause, spot)
	if doublings < 0 {
		return 0
	}
	delay, most := a.Cooldown, MaxCooldown
	if a.Guessed {
		most = min(mostGuesses*a.Cooldown, most)
	}
	for range doublings {
		if delay >= most {
			break
		}
		delay = min(2*delay, most)
	}
	return delay
}
