// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refusal reads what became of a request for a machine: why none came, how much of the
// cloud's offer that rules out and for how long, and which offers are still ruled out by earlier
// requests.
//
// It decides by the words of the cloud (rules.yaml), by age and by disappearance. It must not know
// models, plans, a provisioner's objects, a client or a clock: what was observed, the deadlines and
// the time come in as values, and the same values give the same verdict.
package refusal

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Cause says why a request for a machine came to nothing.
type Cause string

// The causes. None means that nothing is wrong; its other use is an attempt that got its machine.
const (
	None Cause = ""
	// NoCapacity: the cloud has none left of what was asked for.
	NoCapacity Cause = "NoCapacity"
	// Quota: the account may not have more of what was asked for.
	Quota Cause = "Quota"
	// NotOffered: it is not sold here, or not to this account.
	NotOffered Cause = "NotOffered"
	// Misconfigured: another machine type would fail alike, and somebody has to mend something. It is
	// never guessed: only words of the cloud, a node class that is not ready, or Escalate say so.
	Misconfigured Cause = "Misconfigured"
	// TimedOut: no machine was launched in time, and nobody said why.
	TimedOut Cause = "TimedOut"
	// NeverRegistered: the machine runs but never joined the cluster.
	NeverRegistered Cause = "NeverRegistered"
	// NeverInitialized: the node never showed all its GPUs.
	NeverInitialized Cause = "NeverInitialized"
	// Lost: the machine was there and is gone.
	Lost Cause = "Lost"
	// Unknown: the cloud gave a reason that no rule knows.
	Unknown Cause = "Unknown"
	// CannotServe: the machine came, and its pods fail until somebody changes something. It says nothing
	// of what the cloud offers.
	CannotServe Cause = "CannotServe"
)

// NeedsPerson reports whether nothing is asked for after an attempt with this cause before somebody acts.
func (c Cause) NeedsPerson() bool { return c == Misconfigured || c == CannotServe }

// How long an offer is left alone when the cloud's own words say nothing more exact. A rule's words
// have a time of their own in rules.yaml.
const (
	// silentCooldown follows a request that vanished without a word: nobody knows what was out, and
	// asking again costs little.
	silentCooldown = time.Minute
	// shortCooldown follows what may pass soon: a launch that took too long, an unknown error.
	shortCooldown = 10 * time.Minute
	// bootstrapCooldown follows nodes that never joined; the first one is forgiven.
	bootstrapCooldown = 30 * time.Minute
	// brokenCooldown follows nodes whose GPUs never showed: drivers do not mend themselves.
	brokenCooldown = time.Hour
	// lostCooldown follows a machine that was not spot and vanished; the first one is forgiven.
	lostCooldown = time.Minute
)

// Verdict is what is known about one request for a machine. The zero Verdict says that nothing is
// wrong and that the passing of time alone will not change it.
type Verdict struct {
	// Cause is None while nothing is wrong.
	Cause Cause
	// Scope of the offers that the cause rules out, and for how long. A Cooldown of zero rules out
	// nothing: no passing of time mends what is Misconfigured.
	Scope    Scope
	Cooldown time.Duration
	// Message in the cloud's own words on one line, or in ours where the cloud said nothing.
	Message string
	// Fix says what somebody could do about it; empty where waiting is all there is.
	Fix string
	// Rule is the name of the rule whose words were met; empty where age or disappearance decided.
	Rule string
	// Guessed says that the request itself may be what does not fit, and that another Workspace's may.
	Guessed bool
	// MendedBy is what of the cluster can be watched for the mending, and Class what state the node
	// class was in; empty where only people can tell.
	MendedBy Mender
	Class    ClassState
	// Final says that this request will not be answered any more: give it up. Before that, Cause and
	// Message tell what has been heard so far.
	Final bool
	// LookAgain is when time alone may change the verdict; zero means never.
	LookAgain time.Time
}

// Mender is an object whose state tells that something was mended.
type Mender string

// MendedByClass means that the node class tells.
const MendedByClass Mender = "nodeClass"

// mendedBy has a verdict remember what will tell that it was mended.
func (v Verdict) mendedBy(mender Mender, class ClassState) Verdict {
	if v.MendedBy = mender; mender == MendedByClass {
		v.Class = class
	}
	return v
}

// Mended says whether a node class is in a better state than when the request was refused. One that
// was ready then never is: something else was wrong, and the next request would be refused alike.
func Mended(then, now ClassState) bool {
	rank := func(state ClassState) int {
		switch state {
		case ClassReady:
			return 2
		case ClassMissing, ClassNotReady:
			return 0
		default: // nobody looked, or it says nothing of itself
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

// cooldownOf is how long an offer is left alone for a cause that no words of the cloud explain.
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

// isOverOnceLaunched says whether a machine that the cloud has launched disproves a refusal of this cause. Capacity is
// not among them: Azure accepts a request first, and may find none later.
func (c Cause) isOverOnceLaunched() bool {
	return c == Quota || c == NotOffered || c == TimedOut
}

// forgiven is how many refusals in a row cost nothing: a node that failed to join may do so at the
// second try, and a machine that vanished is simply replaced.
func forgiven(cause Cause, spot bool) int {
	if cause == NeverRegistered || cause == Lost && !spot {
		return 1
	}
	return 0
}

// Decisive returns the verdict about a request for several machines, all or none: a final one
// before others, what stops everything before what the next alternative may avoid, then the widest
// scope and the longest cooldown. Where nothing is final, it is to be looked at again as soon as any.
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
