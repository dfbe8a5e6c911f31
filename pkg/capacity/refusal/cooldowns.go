// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// What repeated refusals cost.
const (
	// MaxCooldown is where doubling ends; a cause may have a longer cooldown from the start.
	MaxCooldown = 4 * time.Hour
	// mostGuesses is how many times its cooldown a guess is left alone at most: whoever waits for the
	// one machine type that would do wants it soon after it is back.
	mostGuesses = 10
	// confirmWithin is how long after one Workspace's guess another's makes it true for all.
	confirmWithin = time.Hour
	// clockLead is how far the clock of a former process may have been ahead.
	clockLead = 5 * time.Minute
	// forgetAfter is how long after a cooldown a refusal counts as a new one.
	forgetAfter = 24 * time.Hour
	// keepFor is how long attempts are kept: longer than any cooldown and its aftermath.
	keepFor = 4 * forgetAfter
)

// Attempt is one try to get machines, of whichever Workspace.
type Attempt struct {
	// Workspace that made it.
	Workspace types.UID
	Offering  Offering
	Started   time.Time
	// Ended is when it was given up, or when its machines were usable; zero while it goes on.
	Ended time.Time
	// Cause is None where it got its machines.
	Cause    Cause
	Scope    Scope
	Cooldown time.Duration
	// Guessed as in the verdict: it rules out nothing for others until it happened to one of them too.
	Guessed bool
}

// Credible are the attempts that a clock like ours can have written by now. One from the future
// would be left alone for, and would have all others forgotten as too old.
func Credible(attempts []Attempt, now time.Time) []Attempt {
	return slices.DeleteFunc(slices.Clone(attempts), func(a Attempt) bool { return a.Ended.After(now.Add(clockLead)) })
}

// Cooldown is a scope that is left alone.
type Cooldown struct {
	Scope Scope
	// Workspace that leaves it alone; empty where all do.
	Workspace types.UID
	Cause     Cause
	Until     time.Time
	// Refusals in a row that led to it.
	Refusals int

	refusedAt time.Time
}

// Cooldowns remembers which offers were refused. It is a value: the zero Cooldowns remembers
// nothing, and the same attempts in any order make the same memory.
type Cooldowns struct {
	attempts []Attempt
	active   map[Scope]Cooldown
	// guessed are what single Workspaces leave alone.
	guessed map[Scope]map[types.UID]Cooldown
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
	out := Cooldowns{attempts: all, active: map[Scope]Cooldown{}, guessed: map[Scope]map[types.UID]Cooldown{}}
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
			maps.DeleteFunc(c.guessed[scope], func(_ types.UID, known Cooldown) bool { return !a.Started.Before(known.refusedAt) })
		}
		return
	}
	if a.Cooldown <= 0 {
		return // Misconfigured: no other Workspace is the worse for it, and no waiting helps
	}
	if !a.Guessed {
		scope, known := c.against(a)
		c.active[scope] = known.refused(a)
		return
	}
	own := c.guessed[a.Scope]
	if own == nil {
		own = map[types.UID]Cooldown{}
		c.guessed[a.Scope] = own
	}
	own[a.Workspace] = own[a.Workspace].refused(a)
	for other, known := range own {
		if other != a.Workspace && a.Ended.Sub(known.refusedAt) <= confirmWithin {
			c.active[a.Scope] = c.active[a.Scope].refused(a)
			return
		}
	}
}

// against returns the scope that a refusal is held against, and what is known of it. Words that do not tell
// spot machines from others are held against both, but once that has passed only against the one that was asked
// for: the other one, of which nobody knows, would never be asked for.
func (c Cooldowns) against(a Attempt) (Scope, Cooldown) {
	known, one := c.active[a.Scope], a.Scope
	one.CapacityType = a.Offering.CapacityType
	own := c.active[one]
	switch {
	case a.Scope.CapacityType != Any || !known.isRemembered(a.Ended) && !own.isRemembered(a.Ended):
		return a.Scope, known
	case own.isRemembered(a.Ended) && !own.Until.Before(known.Until):
		return one, own
	case !a.Started.Before(known.Until):
		known.Scope = one
		return one, known
	default:
		return a.Scope, known
	}
}

// isRemembered says whether a refusal then follows others in a row.
func (c Cooldown) isRemembered(then time.Time) bool {
	return c.Refusals > 0 && then.Sub(c.Until) <= forgetAfter
}

// refused returns the cooldown after a further refusal; the zero one is for the first.
func (c Cooldown) refused(a Attempt) Cooldown {
	known := c
	switch {
	case !known.isRemembered(a.Ended):
		known = Cooldown{Scope: a.Scope, Refusals: 1}
	case !a.Started.Before(known.Until):
		known.Refusals++
	case delay(a, known.Refusals) == 0:
		// The forgiven one, heard twice: whoever asks after it was heard first counts, also where several
		// Workspaces take turns so that one is always under way.
		known.refusedAt = a.Ended
		return known
	default: // it was under way when another was refused: the same refusal, heard twice
	}
	known.refusedAt = a.Ended
	if until := a.Ended.Add(delay(a, known.Refusals)); !until.Before(known.Until) {
		known.Until, known.Cause = until, a.Cause
	}
	return known
}

// delay is how long an attempt's scope is left alone after so many refusals in a row.
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

// Active returns until when a Workspace leaves an offering alone, and why; ok is false where it does
// not.
func (c Cooldowns) Active(now time.Time, workspace types.UID, o Offering) (until time.Time, cause Cause, ok bool) {
	until, cause, ok = c.activeIn(now, workspace, o)
	if ok || !strings.Contains(o.Zone, zoneSeparator) {
		return until, cause, ok
	}
	// One of several zones is enough, until each of them was refused by itself.
	for i, zone := range strings.Split(o.Zone, zoneSeparator) {
		in := o
		in.Zone = zone
		reopens, why, isOut := c.activeIn(now, workspace, in)
		if !isOut {
			return time.Time{}, None, false
		}
		if i == 0 || reopens.Before(until) {
			until, cause, ok = reopens, why, true
		}
	}
	return until, cause, ok
}

// activeIn is Active of an offering as it is called, whatever its parts are.
func (c Cooldowns) activeIn(now time.Time, workspace types.UID, o Offering) (until time.Time, cause Cause, ok bool) {
	if len(c.active) == 0 && len(c.guessed) == 0 {
		return until, cause, false
	}
	for _, scope := range scopesAround(o) {
		for _, known := range []Cooldown{c.active[scope], c.guessed[scope][workspace]} {
			if known.Until.After(now) && known.Until.After(until) {
				until, cause, ok = known.Until, known.Cause, true
			}
		}
	}
	return until, cause, ok
}

// Zones returns the single zones in which a Workspace leaves an offering alone that it asks for wherever it
// is to be had, sorted.
func (c Cooldowns) Zones(now time.Time, workspace types.UID, o Offering) []string {
	var out []string
	for _, known := range c.List(now) {
		in := o
		in.Zone = known.Scope.Zone
		isOne := known.Scope.Breadth == OneOffering && in.Zone != "" && in.Zone != Any && !strings.Contains(in.Zone, zoneSeparator)
		if isOne && known.Scope.Covers(in) && (known.Workspace == "" || known.Workspace == workspace) {
			out = append(out, in.Zone)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Unproven returns the cooldowns around an offering that have passed, and after which nobody has got
// one yet: whether it is to be had again is not known.
func (c Cooldowns) Unproven(now time.Time, o Offering) []Cooldown {
	var out []Cooldown
	if len(c.active) == 0 {
		return nil
	}
	for _, scope := range scopesAround(o) {
		known, ok := c.active[scope]
		isForgiven := !known.Until.After(known.refusedAt)
		if ok && !isForgiven && !known.Until.After(now) && now.Sub(known.Until) <= forgetAfter {
			out = append(out, known)
		}
	}
	return out
}

// List returns what is left alone now, by scope, and for one scope what all leave alone first.
func (c Cooldowns) List(now time.Time) []Cooldown {
	out := slices.Collect(maps.Values(c.active))
	for _, guesses := range c.guessed {
		for workspace, cooldown := range guesses {
			cooldown.Workspace = workspace
			out = append(out, cooldown)
		}
	}
	out = slices.DeleteFunc(out, func(cooldown Cooldown) bool { return !cooldown.Until.After(now) })
	slices.SortFunc(out, func(a, b Cooldown) int {
		return cmp.Or(strings.Compare(a.Scope.String(), b.Scope.String()), cmp.Compare(a.Workspace, b.Workspace))
	})
	return out
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
		cmp.Compare(a.Offering.NodeClass, b.Offering.NodeClass),
		cmp.Compare(a.Workspace, b.Workspace),
		cmp.Compare(weigh(a.Guessed), weigh(b.Guessed)),
	)
}
