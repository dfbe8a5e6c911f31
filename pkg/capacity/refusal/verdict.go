// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refusal interprets the outcome of a request for a machine: the cause of a failure, the offers that it
// rules out and for how long, and the offers still ruled out by earlier requests.
//
// It decides by the cloud's messages (rules.yaml), by age and by disappearance. It must not know models, plans, a
// provisioner's objects, a client or a clock: observations, deadlines and the time are values, and the same values
// give the same verdict.
package refusal

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Cause is why a request for a machine failed.
type Cause string

// The causes. None means no failure; it is also the cause of an attempt that got its machine.
const (
	None Cause = ""
	// NoCapacity: the cloud has no capacity left for the offer.
	NoCapacity Cause = "NoCapacity"
	// Quota: the account's quota is used up.
	Quota Cause = "Quota"
	// NotOffered: it is not sold here, or not to this account.
	NotOffered Cause = "NotOffered"
	// Misconfigured: another machine type would fail in the same way, and a person has to repair something. It is
	// never guessed: its evidence is a message of the cloud, a node class that is not ready, or Escalate.
	Misconfigured Cause = "Misconfigured"
	// TimedOut: no machine was launched in time, without a reason.
	TimedOut Cause = "TimedOut"
	// NeverRegistered: the machine runs but never joined the cluster.
	NeverRegistered Cause = "NeverRegistered"
	// NeverInitialized: the node never advertised all its GPUs.
	NeverInitialized Cause = "NeverInitialized"
	// Lost: the machine was there and is gone.
	Lost Cause = "Lost"
	// Unknown: the cloud gave a reason without a rule.
	Unknown Cause = "Unknown"
	// CannotServe: the machine launched, but its pods fail permanently, or none was ready in time. It proves nothing about
	// the cloud's offer.
	CannotServe Cause = "CannotServe"
)

// NeedsPerson reports whether nothing is requested after an attempt with this cause before a person acts.
func (c Cause) NeedsPerson() bool { return c == Misconfigured || c == CannotServe }

// How long an offer is excluded if the cloud's message is not more exact. A rule for a message has
// its own time in rules.yaml.
const (
	// silentCooldown follows a request that vanished without a message: the missing resource is unknown, and
	// another request costs little.
	silentCooldown = time.Minute
	// shortCooldown follows temporary failures: a slow launch, an unknown error.
	shortCooldown = 10 * time.Minute
	// bootstrapCooldown follows nodes that never joined; the first one is forgiven.
	bootstrapCooldown = 30 * time.Minute
	// brokenCooldown follows nodes whose GPUs never appeared: drivers do not repair themselves.
	brokenCooldown = time.Hour
	// lostCooldown follows the loss of a machine that was not spot; the first one is forgiven.
	lostCooldown = time.Minute
)

// Verdict is the judgement of one request for a machine. The zero Verdict means no failure, and that time alone
// changes nothing.
type Verdict struct {
	// Cause is None while nothing is wrong.
	Cause Cause
	// Scope of the excluded offers, and the duration. A Cooldown of zero excludes nothing: time does not repair a
	// Misconfigured cause.
	Scope    Scope
	Cooldown time.Duration
	// Message in the cloud's own words on one line, or in ours if the cloud gave none.
	Message string
	// Fix is the remedy for users; empty if they can only wait.
	Fix string
	// Rule is the name of the matching rule; empty if age or disappearance decided.
	Rule string
	// Guessed is set if the request itself may be the cause, so another Workspace's may succeed.
	Guessed bool
	// MendedBy is the object whose state shows the repair, and Class the node class's state; empty if the repair is
	// not visible.
	MendedBy Mender
	Class    ClassState
	// Final is set if this request will get no more machines and must end. Before that, Cause and Message have
	// the current state.
	Final bool
	// LookAgain is when time alone may change the verdict; zero means never.
	LookAgain time.Time
}

// Mender is the kind of object whose state shows that the cause is repaired.
type Mender string

// MendedByClass means the node class.
const MendedByClass Mender = "nodeClass"

// mendedBy records the object that will show the repair.
func (v Verdict) mendedBy(mender Mender, class ClassState) Verdict {
	if v.MendedBy = mender; mender == MendedByClass {
		v.Class = class
	}
	return v
}

// Mended reports whether a node class is in a better state than at the refusal. A class that was ready never is:
// the cause was another one, and the next request would fail in the same way.
func Mended(then, now ClassState) bool {
	rank := func(state ClassState) int {
		switch state {
		case ClassReady:
			return 2
		case ClassMissing, ClassNotReady:
			return 0
		default: // nobody read it, or it reports nothing
			return 1
		}
	}
	return rank(now) > rank(then)
}

// finalAt makes a verdict final from a moment on; the zero moment never comes.
func finalAt(v Verdict, at, now time.Time) Verdict {
	v.Final, v.LookAgain = false, time.Time{}
	switch {
	case at.IsZero():
	case now.Before(at):
		v.LookAgain = at
	default:
		v.Final = true
	}
	return v
}

// cooldownOf is the cooldown for a cause without a message of the cloud.
func cooldownOf(cause Cause, spot bool) time.Duration {
	switch cause {
	case None, Misconfigured, CannotServe:
		return 0
	case NeverRegistered:
		return bootstrapCooldown
	case NeverInitialized:
		return brokenCooldown
	case Lost:
		if !spot {
			return lostCooldown
		}
	case NoCapacity, Quota, NotOffered, TimedOut, Unknown:
	}
	return shortCooldown
}

// isOverOnceLaunched reports whether a launched machine disproves a refusal of this cause. Not so for capacity:
// Azure accepts a request first, and may find no capacity later.
func (c Cause) isOverOnceLaunched() bool {
	return c == Quota || c == NotOffered || c == TimedOut
}

// forgiven is how many refusals in a row cost nothing: a node may join at the second try, and a lost machine is
// simply replaced.
func forgiven(cause Cause, spot bool) int {
	if cause == NeverRegistered || cause == Lost && !spot {
		return 1
	}
	return 0
}

// Decisive returns the verdict on a request for several machines, all or none: final ones first, permanent failures
// before avoidable ones, then the widest scope and the longest cooldown. If none is final, the next look is the
// earliest of all.
func Decisive(verdicts []Verdict) Verdict {
	if len(verdicts) == 0 {
		return Verdict{}
	}
	rank := func(v Verdict) []int {
		return []int{weigh(v.Final), weigh(v.Cause == Misconfigured), weigh(v.Cause != None), slices.Index(widths(), v.Scope.Breadth)}
	}
	out := slices.MaxFunc(verdicts, func(a, b Verdict) int {
		return cmp.Or(
			slices.Compare(rank(a), rank(b)),
			cmp.Compare(a.Cooldown, b.Cooldown),
			strings.Compare(a.Scope.String(), b.Scope.String()),
			strings.Compare(string(a.Cause)+a.Message, string(b.Cause)+b.Message),
		)
	})
	if out.Final {
		return out
	}
	for _, v := range verdicts {
		out.LookAgain = earlier(out.LookAgain, v.LookAgain)
	}
	return out
}

func weigh(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
