// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"slices"
	"time"
)

// classFix is the fix of a verdict by the state of the node class.
const classFix = "create the node class, or fix what its conditions report"

// Karpenter deletes a claim that has not launched or registered within these times from its creation, and leaves
// neither a condition nor an event (its nodeclaim/lifecycle/liveness.go). The slack is for clocks that differ.
const (
	karpenterLaunch   = 5*time.Minute - clockSlack
	karpenterRegister = 15*time.Minute - clockSlack
	clockSlack        = 30 * time.Second
)

// Classify returns the outcome of a request for a machine. While a claim exists, time alone never changes a final
// verdict.
func (r Rules) Classify(o Observation, deadlines Deadlines, now time.Time) Verdict {
	gone := !o.GoneAt.IsZero()
	switch {
	case gone && o.isRegistered():
		return r.lost(o)
	case gone && o.isLaunched():
		return r.vanishedBeforeJoining(o)
	case gone:
		return r.vanishedBeforeLaunch(o)
	case o.isUsable():
		return Verdict{}
	case o.isRegistered():
		return initializing(o, deadlines, now)
	case o.isLaunched():
		return registering(o, deadlines, now)
	default:
		return r.launching(o, deadlines, now)
	}
}

// launching judges a claim without a machine by the messages about it, or else by its deadline.
func (r Rules) launching(o Observation, deadlines Deadlines, now time.Time) Verdict {
	deadline := after(o.CreatedAt, deadlines.Registered)
	if o.Provider == GPUProvisioner || hasNoClaim(o.Launched.Reason) {
		deadline = earlier(after(o.CreatedAt, deadlines.Launched), deadline)
	}
	said := o.launchSignals()
	if entry, words := r.hear(o.Provider, said); entry != nil {
		v := r.verdict(entry, words, o)
		patience := entry.Patience.Duration
		if v.Scope.isPartOf(o.Offering) {
			patience = max(patience, r.widen(&v, words, o))
		}
		if patience == 0 {
			v.Final = true // whatever the clocks say
			return v
		}
		return finalAt(v, earlier(o.CreatedAt.Add(patience), deadline), now)
	}
	unexplained, found := firstOf(said)
	patience := r.patience[o.Provider]
	switch {
	case found && patience > 0:
		v := silent(Unknown, OneOffering, o, words(unexplained))
		return finalAt(v, earlier(o.CreatedAt.Add(patience), deadline), now)
	case found:
		v := silent(TimedOut, OneOffering, o, words(unexplained))
		if v = finalAt(v, deadline, now); !v.Final {
			v.Cause, v.Cooldown = Unknown, cooldownOf(Unknown, o.isSpot())
		}
		return v
	}
	return quietUntil(deadline, unanswered(o, deadline), now)
}

// unanswered is the verdict on a request that got neither a message nor a machine in time.
func unanswered(o Observation, deadline time.Time) Verdict {
	name, by := o.Offering.InstanceType, at(deadline)
	switch {
	case o.Launched.Reason == ReasonNoNodeClaim:
		return silent(TimedOut, OneOffering, o, trim(o.Launched.Message))
	case isRetraction(o.Launched.Reason):
		return silent(TimedOut, OneOffering, o, trim(fmt.Sprintf("no %s joined the cluster by %s: %s", name, by, o.Launched.Message)))
	case o.Provider == ClusterAutoscaler:
		v := silent(TimedOut, OneOffering, o, fmt.Sprintf("no %s joined the cluster by %s, and no autoscaler reacted to the pending pod", name, by))
		v.Fix = "check that cluster autoscaler runs and has a node group of this machine type, or add such a node"
		return v
	default:
		return silent(TimedOut, OneOffering, o, fmt.Sprintf("no %s was launched by %s, and the provider gave no reason", name, by))
	}
}

// widen extends a verdict on one of several zones to the whole request, because a new request would be the same. It
// returns how long the provisioner may try the other zones on its own. If an event reports the refusal, the
// provisioner has already tried them.
func (r Rules) widen(v *Verdict, said signal, o Observation) time.Duration {
	v.Scope.Zone = o.Offering.Zone
	if said.isEvent {
		return 0
	}
	return r.patience[o.Provider]
}

// registering judges a claim with a machine that is not a node yet.
func registering(o Observation, deadlines Deadlines, now time.Time) Verdict {
	v := silent(NeverRegistered, SKU, o, "")
	if o.Registered.Status == StatusFalse { // two nodes claim to be this machine: Karpenter gives up here
		v.Message = fmt.Sprintf("the machine cannot join the cluster: %s", words(conditionSignal(o.Registered)))
		v.Final = true
		return v
	}
	deadline := after(o.CreatedAt, deadlines.Registered)
	v.Message = fmt.Sprintf("the machine runs, but it did not join the cluster by %s", at(deadline))
	return quietUntil(deadline, v, now)
}

// initializing judges a node that does not advertise all its GPUs yet. The deadline counts from the node's
// registration, or from the deadline for registration if that is earlier.
func initializing(o Observation, deadlines Deadlines, now time.Time) Verdict {
	joined := o.CreatedAt
	if o.Registered.Status == StatusTrue && o.Registered.Since.After(joined) {
		joined = earlier(o.Registered.Since, after(o.CreatedAt, deadlines.Registered))
	}
	deadline := after(joined, deadlines.Initialized)
	missing := fmt.Sprintf("the node advertises %d of %d GPUs", o.GPUs, o.GPUsWanted)
	if said := words(conditionSignal(o.Initialized)); said != "" && o.Initialized.Status != StatusTrue {
		missing += ", " + said
	}
	v := silent(NeverInitialized, SKU, o, trim(fmt.Sprintf("the node was not usable by %s: %s", at(deadline), missing)))
	v.Fix = "check the GPU driver and the device plugin on the node, and remove leftover startup taints"
	return quietUntil(deadline, v, now)
}

// lost judges a claim that vanished after its machine had joined.
func (r Rules) lost(o Observation) Verdict {
	entry, said := r.hear(o.Provider, o.eventSignals(time.Time{}))
	if entry != nil && entry.Cause == Lost {
		v := r.verdict(entry, said, o)
		v.Final = true
		return v
	}
	v := silent(Lost, OneOffering, o, fmt.Sprintf("the machine disappeared %s after it was requested",
		o.ageAtEnd().Round(time.Second)))
	v.Final = true
	return v
}

// vanishedBeforeJoining judges a claim that vanished after its launch, before its machine became a node. Only messages
// since the launch can be the reason: Azure accepts a request first and may refuse it later.
func (r Rules) vanishedBeforeJoining(o Observation) Verdict {
	v := silent(Lost, OneOffering, o, fmt.Sprintf("the machine disappeared %s after it was requested, before it joined the cluster",
		o.ageAtEnd().Round(time.Second)))
	if entry, said := r.hear(o.Provider, o.eventSignals(o.Launched.Since)); entry != nil {
		v = r.verdict(entry, said, o)
	} else if o.ageAtEnd() >= karpenterRegister && o.Provider.givesUp() {
		v = silent(NeverRegistered, SKU, o, "the machine ran, but it never joined the cluster and was deleted")
	}
	v.Final = true
	return v
}

// vanishedBeforeLaunch judges a claim that vanished without a machine. Karpenter deletes such a claim for three
// reasons: every allowed offer is unavailable, the node class is not ready, or five minutes have passed.
// gpu-provisioner never deletes one.
func (r Rules) vanishedBeforeLaunch(o Observation) Verdict {
	v := r.reasonOfVanishing(o)
	v.Final = true
	// The claim is gone because all of its offers were unavailable, whichever zone the message names.
	if v.Scope.isPartOf(o.Offering) {
		v.Scope.Zone = o.Offering.Zone
	}
	return v
}

func (r Rules) reasonOfVanishing(o Observation) Verdict {
	said := o.launchSignals()
	if entry, found := r.hear(o.Provider, said); entry != nil {
		return r.verdict(entry, found, o)
	}
	heard, found := firstOf(said)
	tail := ""
	if found {
		tail = ": " + words(heard)
	}
	late := o.ageAtEnd() >= karpenterLaunch
	switch {
	case o.Provider == ClusterAutoscaler:
		return silent(Lost, OneOffering, o, trim("the pending pod was deleted before a machine joined"+tail))
	case !o.Provider.givesUp():
		return silent(Lost, OneOffering, o, trim("the NodeClaim was deleted before it was launched"+tail))
	case late && found && o.Provider != UnknownProvider:
		return silent(Unknown, OneOffering, o, words(heard))
	case late:
		return silent(TimedOut, OneOffering, o, trim("the NodeClaim was abandoned before it was launched"+tail))
	case o.Class == ClassNotReady || o.Class == ClassMissing:
		v := silent(Misconfigured, Everything, o, trim("the node class is not ready: "+o.ClassMessage))
		v.Fix = classFix
		return v.mendedBy(MendedByClass, o.Class)
	}
	v := silent(NoCapacity, OneOffering, o, trim(fmt.Sprintf(
		"the NodeClaim was deleted before it was launched: no capacity or no quota for %s%s", o.Offering.InstanceType, tail)))
	v.Cooldown, v.Guessed = silentCooldown, true
	return v
}

// hear returns the rule for the messages about a claim, and the decisive message: the newest strong message, or else
// the newest weak one. A strong message remains true if a later try fails for a lesser reason.
func (r Rules) hear(provider Provider, said []signal) (*rule, signal) {
	var weak *rule
	var weakWords signal
	for _, words := range said {
		entry := r.find(provider, words)
		switch {
		case entry == nil:
		case !entry.Weak:
			return entry, words
		case weak == nil:
			weak, weakWords = entry, words
		}
	}
	return weak, weakWords
}

// verdict is a rule's verdict on a claim.
func (r Rules) verdict(entry *rule, said signal, o Observation) Verdict {
	scope := scopeOf(entry.Breadth, entry.Evidence, o.Offering)
	if zone := entry.zoneIn(said.message); zone != "" && scope.Breadth == OneOffering {
		scope.Zone = zone
	}
	if entry.CapacityType != "" {
		scope.CapacityType = entry.CapacityType
	}
	cooldown := entry.Cooldown.Duration
	if o.isSpot() && entry.SpotCooldown.Duration > 0 {
		cooldown = entry.SpotCooldown.Duration
	}
	v := Verdict{
		Cause: entry.Cause, Scope: scope, Cooldown: cooldown, Message: words(said), Fix: entry.Fix, Rule: entry.Name,
		Guessed: entry.Weak && entry.Cause == NoCapacity || entry.Evidence == OfRequest,
	}
	return v.mendedBy(entry.MendedBy, o.Class)
}

// silent returns a verdict for a failure without a cause from the provider. If no machine was launched, the request
// itself may be the cause. If the request named a zone, the verdict is about that zone alone.
func silent(cause Cause, breadth Breadth, o Observation, message string) Verdict {
	if breadth == SKU && o.Offering.Zone != "" {
		breadth = OneOffering
	}
	isOwn := cause == TimedOut || cause == Unknown || cause == Lost && (!o.isLaunched() || o.Provider == ClusterAutoscaler)
	return Verdict{
		Cause: cause, Scope: scopeOf(breadth, OfClass, o.Offering), Cooldown: cooldownOf(cause, o.isSpot()),
		Message: message, Guessed: isOwn && cooldownOf(cause, o.isSpot()) > 0,
	}
}

// InPart returns the verdict on a machine of an attempt that got some of its machines. The refusal becomes a guess: the
// refusal of a third machine proves nothing about a request for a single machine.
func (v Verdict) InPart() Verdict {
	switch v.Cause {
	case NoCapacity, Quota, NotOffered, TimedOut, Unknown:
		v.Guessed = v.Cooldown > 0
	case None, Misconfigured, NeverRegistered, NeverInitialized, Lost, CannotServe:
	}
	return v
}

// quietUntil returns the verdict from a deadline on. Before it, only LookAgain is set.
func quietUntil(deadline time.Time, v Verdict, now time.Time) Verdict {
	if v = finalAt(v, deadline, now); v.Final {
		return v
	}
	return Verdict{LookAgain: v.LookAgain}
}

// words returns the trimmed message of a signal, or its reason if it has no message.
func words(s signal) string {
	if message := trim(s.message); message != "" {
		return message
	}
	return trim(s.reason)
}

func conditionSignal(c Condition) signal { return signal{reason: c.Reason, message: c.Message} }

// firstOf returns the newest message of a condition. Events without a rule are not messages of the cloud: most of
// them report Karpenter's actions.
func firstOf(said []signal) (signal, bool) {
	i := slices.IndexFunc(said, func(s signal) bool { return !s.isEvent })
	if i < 0 {
		return signal{}, false
	}
	return said[i], true
}

func at(moment time.Time) string { return moment.UTC().Format(time.TimeOnly + " MST") }
