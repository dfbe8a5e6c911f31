// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// What repeated refusals cost.
const (
	// MaxCooldown is where doubling ends; a cause may have a longer cooldown from the start.
	MaxCooldown = 4 * time.Hour
	// forgetAfter is how long after a cooldown a refusal counts as a new one.
	forgetAfter = 24 * time.Hour
	// keepFor is how long attempts are kept: longer than any cooldown and its aftermath.
	keepFor = 4 * forgetAfter
)

// Attempt is one try to get machines, of whichever Workspace.
type Attempt struct {
	Offering Offering
	Started  time.Time
	// Ended is when it was given up, or when its machines were usable; zero while it goes on.
	Ended time.Time
	// Cause is None where it got its machines.
	Cause    Cause
	Scope    Scope
	Cooldown time.Duration
}

// Cooldown is a scope that is left alone.
type Cooldown struct {
	Scope Scope
	Cause Cause
	Until time.Time
	// Refusals in a row that led to it.
	Refusals int

	refusedAt time.Time
}

// Cooldowns remembers which offers were refused. It is a value: the zero Cooldowns remembers
// nothing, and the same attempts in any order make the same memory.
type Cooldowns struct {
	attempts []Attempt
	active   map[Scope]Cooldown
}

// NewCooldowns builds the memory from attempts, for example those that the Workspaces have stored.
func NewCooldowns(attempts []Attempt) Cooldowns {
	return Cooldowns{}.With(attempts...)
}

// With returns a memory that knows further attempts too. To tell one twice changes nothing.
func (c Cooldowns) With(attempts ...Attempt) Cooldowns {
	all := slices.Concat(c.attempts, attempts)
	all = slices.DeleteFunc(all, func(a Attempt) bool { return a.Ended.IsZero() })
	slices.SortFunc(all, compareAttempts)
	all = slices.CompactFunc(all, func(a, b Attempt) bool { return compareAttempts(a, b) == 0 })
	if len(all) > 0 {
		oldest := all[len(all)-1].Ended.Add(-keepFor)
		all = slices.DeleteFunc(all, func(a Attempt) bool { return a.Ended.Before(oldest) })
	}
	out := Cooldowns{attempts: all, active: map[Scope]Cooldown{}}
	for _, attempt := range all {
		out.learn(attempt)
	}
	return out
}

// learn takes in one attempt; they come in the order in which they ended.
func (c Cooldowns) learn(a Attempt) {
	if a.Cause == None {
		for _, scope := range scopesAround(a.Offering) {
			if known, ok := c.active[scope]; ok && !a.Started.Before(known.refusedAt) {
				delete(c.active, scope) // it was asked for after the refusal, and it was there
			}
		}
		return
	}
	if a.Cooldown <= 0 {
		return // Misconfigured: no other Workspace is the worse for it, and no waiting helps
	}
	known, ok := c.active[a.Scope]
	switch {
	case !ok || a.Ended.Sub(known.Until) > forgetAfter:
		known = Cooldown{Scope: a.Scope, Refusals: 1}
	case !a.Started.Before(known.Until):
		known.Refusals++
	default: // it was under way when another was refused: the same refusal, heard twice
	}
	known.refusedAt = a.Ended
	if until := a.Ended.Add(delay(a, known.Refusals)); !until.Before(known.Until) {
		known.Until, known.Cause = until, a.Cause
	}
	c.active[a.Scope] = known
}

// delay is how long an attempt's scope is left alone after so many refusals in a row.
func delay(a Attempt, refusals int) time.Duration {
	spot := a.Offering.CapacityType == v1beta1.CapacitySpot
	doublings := refusals - 1 - forgiven(a.Cause, spot)
	if doublings < 0 {
		return 0
	}
	delay := a.Cooldown
	for range doublings {
		if delay >= MaxCooldown {
			break
		}
		delay = min(2*delay, MaxCooldown)
	}
	return delay
}

// Active returns until when an offering is left alone, and why; ok is false where it is not.
func (c Cooldowns) Active(now time.Time, o Offering) (until time.Time, cause Cause, ok bool) {
	for _, scope := range scopesAround(o) {
		if known, found := c.active[scope]; found && known.Until.After(now) && known.Until.After(until) {
			until, cause, ok = known.Until, known.Cause, true
		}
	}
	return until, cause, ok
}

// List returns what is left alone now, by scope.
func (c Cooldowns) List(now time.Time) []Cooldown {
	return slices.SortedFunc(func(yield func(Cooldown) bool) {
		for cooldown := range maps.Values(c.active) {
			if cooldown.Until.After(now) && !yield(cooldown) {
				return
			}
		}
	}, func(a, b Cooldown) int { return strings.Compare(a.Scope.String(), b.Scope.String()) })
}

// compareAttempts orders attempts by when they ended; no two that differ are equal.
func compareAttempts(a, b Attempt) int {
	return cmp.Or(
		a.Ended.Compare(b.Ended),
		a.Started.Compare(b.Started),
		strings.Compare(a.Scope.String(), b.Scope.String()),
		cmp.Compare(a.Cause, b.Cause),
		cmp.Compare(a.Cooldown, b.Cooldown),
		cmp.Compare(a.Offering.InstanceType, b.Offering.InstanceType),
		cmp.Compare(a.Offering.Family, b.Offering.Family),
		cmp.Compare(a.Offering.Zone, b.Offering.Zone),
		cmp.Compare(a.Offering.CapacityType, b.Offering.CapacityType),
	)
}
