// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refusal interprets the outcome of a request for a machine: why it failed, which offers that excludes, and
// for how long. It also keeps the offers that earlier requests exclude.
//
// It decides by the cloud's messages (rules.yaml), by age and by disappearance. It must not depend on models, plans, a
// provisioner's objects, a client or a clock. Observations, deadlines and the time are values, and the same values
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
	// NotOffered: the offer is not sold here, or not to this account.
	NotOffered Cause = "NotOffered"
	// Misconfigured: another machine type would fail in the same way, and a person has to fix something. This cause is
	// never guessed: it comes from a message of the cloud, from a node class that is not ready, or from Escalate.
	Misconfigured Cause = "Misconfigured"
	// TimedOut: no machine was launched in time, and no reason is known.
	TimedOut Cause = "TimedOut"
	// NeverRegistered: the machine runs but never joined the cluster.
	NeverRegistered Cause = "NeverRegistered"
	// NeverInitialized: the node never advertised all its GPUs.
	NeverInitialized Cause = "NeverInitialized"
	// Lost: the machine existed and is gone.
	Lost Cause = "Lost"
	// Unknown: the cloud gave a reason that no rule matches.
	Unknown Cause = "Unknown"
	// CannotServe: the machine launched, but its pods fail permanently, or none was ready in time. This proves nothing
	// about the cloud's offer.
	CannotServe Cause = "CannotServe"
)

// NeedsPerson reports whether a person must act after an attempt with this cause, before anything is requested again.
func (c Cause) NeedsPerson() bool { return c == Misconfigured || c == CannotServe }

// How long an offer is excluded if no rule matches a message of the cloud. The rules in rules.yaml have their own
// cooldowns.
const (
	// silentCooldown follows a request that vanished without a message: the missing resource is unknown, and
	// another request costs little.
	silentCooldown = time.Minute
	// shortCooldown follows temporary failures: a slow launch, an unknown error.
	shortCooldown = 10 * time.Minute
	// bootstrapCooldown follows nodes that never joined; the first one is forgiven.
	bootstrapCooldown = 30 * time.Minute
	// brokenCooldown follows nodes whose GPUs never appeared: drivers do not fix themselves.
	brokenCooldown = time.Hour
	// lostCooldown follows the loss of a machine that was not spot; the first one is forgiven.
	lostCooldown = time.Minute
)

// Verdict is the judgement of one request for a machine. The zero Verdict means that there is no failure, and that
// time alone changes nothing.
type Verdict struct {
	// Cause is None while nothing is wrong.
	Cause Cause
	// Scope is the set of excluded offers, and Cooldown is for how long. A Cooldown of zero excludes nothing, for
	// example because time does not fix a Misconfigured cause.
	Scope    Scope
	Cooldown time.Duration
	// Message is the cloud's message on one line, or ours if the cloud gave none.
	Message string
	// Fix is the remedy for users; empty if they can only wait.
	Fix string
	// Rule is the name of the matching rule; empty if age or disappearance decided.
	Rule string
	// Guessed is set if the request itself may be the cause, so that another Workspace's request may succeed.
	Guessed bool
	// MendedBy is the kind of object whose state shows when the cause is fixed, and Class is the state of the node
	// class; empty if no object shows it.
	MendedBy Mender
	Class    ClassState
	// Final is set if this request will get no more machines and must end. Before that, Cause and Message describe the
	// current state.
	Final bool
	// LookAgain is when time alone may change the verdict; zero means never.
	LookAgain time.Time
}

// Mender is a kind of object whose state shows when a cause is fixed.
type Mender string

// MendedByClass means the node class.
const MendedByClass Mender = "nodeClass"

// mendedBy records the kind of object that will show the fix.
func (v Verdict) mendedBy(mender Mender, class ClassState) Verdict {
	if v.MendedBy = mender; mender == MendedByClass {
		v.Class = class
	}
	return v
}

// Mended reports whether a node class is in a better state than at the refusal. That is never so if the class was
// ready: the cause was another one, and the next request would fail in the same way.
func Mended(then, now ClassState) bool {
	rank := func(state ClassState) int {
		switch state {
		case ClassReady:
			return 2
		case ClassMissing, ClassNotReady:
			return 0
		default: // not read, or without a Ready condition
			return 1
		}
	}
	return rank(now) > rank(then)
}

// finalAt makes a verdict final from a time on; zero means never.
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

// cooldownOf returns the cooldown for a cause without a message of the cloud.
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

// isOverOnceLaunched reports whether a launched machine disproves a refusal of this cause. It does not disprove
// NoCapacity: Azure accepts a request first, and may find no capacity later.
func (c Cause) isOverOnceLaunched() bool {
	return c == Quota || c == NotOffered || c == TimedOut
}

// forgiven returns how many refusals in a row start no cooldown: a node may join at the second try, and a lost machine
// is simply replaced.
func forgiven(cause Cause, spot bool) int {
	if cause == NeverRegistered || cause == Lost && !spot {
		return 1
	}
	return 0
}

// Decisive returns the decisive verdict on a request for several machines, all or none: final verdicts come first,
// then Misconfigured, then other failures, then the widest scope and the longest cooldown. If none is final, LookAgain
// is the earliest of all.
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
