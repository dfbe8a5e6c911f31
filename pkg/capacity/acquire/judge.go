// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// CacheLag is how long a new machine may be missing from the cache. After that, the API server confirms whether the
// machine vanished.
const CacheLag = 5 * time.Second

// Judge returns verdicts on machines.
type Judge struct {
	// Rules and Deadlines classify the messages of a provisioner. Provider selects the rules for its wording.
	Rules     refusal.Rules
	Deadlines refusal.Deadlines
	Provider  refusal.Provider
	// Nodes is the state of the machines' nodes.
	Nodes Nodes
	Asker refusal.Asker
	Now   time.Time
	// FailureDeadline is how long the pods may fail permanently before their machines are released; 0 means forever.
	FailureDeadline time.Duration
	// IdleDeadline is how long machines may wait for the first ready pod before they are released; 0 means forever.
	IdleDeadline time.Duration
}

// Case is one open attempt whose machines are judged.
type Case struct {
	Attempt *v1beta1.Attempt
	// Names of the attempt's machines, in order.
	Names []string
	// Machines are the Workspace's machines in the caches. Lost are the UIDs of machines that open attempts have lost.
	Machines Machines
	Lost     []types.UID
	// Offering is the attempt's request. GPUs is the number of GPUs of each machine.
	Offering refusal.Offering
	GPUs     int
	// IsConfirmed: the API server has the same machines as the caches.
	IsConfirmed bool
	// Reasons explain the end of machines; nil until they are read.
	Reasons *Reasons
}

// Reasons explain the end of machines beyond their own conditions.
type Reasons struct {
	Events []refusal.Event
	// Class is the state of the node class. ClassMessage describes the problem unless the class is ready.
	Class        refusal.ClassState
	ClassMessage string
	// Past are the earlier attempts of the Workspace.
	Past []refusal.Attempt
}

// Judgement is the result of Judge. It is complete if Needs is NeedsNothing.
type Judgement struct {
	// Machines of the case, in order.
	Machines []Machine
	// LookAgain is the time until a missing machine should appear in the cache; 0 if none is missing.
	LookAgain time.Duration
	// Unheard explains why nodes that are not Ready do not count as lost; empty if they count, or if all are Ready.
	Unheard string
	// Needs is the input to add before the case is judged again.
	Needs Need
	// Final are the UIDs of the lost machines.
	Final []types.UID
}

// Judge returns the verdicts on the machines of a case.
func (j *Judge) Judge(c *Case) Judgement {
	out := Judgement{Machines: make([]Machine, len(c.Names))}
	seen := make([]refusal.Observation, len(c.Names))
	for i, name := range c.Names {
		observed := j.Observe(c, name)
		if out.Needs = observed.Needs; out.Needs != NeedsNothing {
			return out
		}
		out.Machines[i], seen[i] = observed.Machine, observed.Observation
		out.Machines[i].Ordinal = i
		out.lookAgain(observed.LookAgain)
		machine := c.Machines.Named(name)
		if !observed.Existed || machine == nil && observed.GoneAt.IsZero() {
			continue // it never existed, or the cache does not show it yet
		}
		out.Machines[i].Verdict = j.verdict(machine, seen[i], &out)
		if !out.Machines[i].Verdict.Final {
			continue
		}
		if machine != nil && machine.Deleting && !c.IsConfirmed { // a former leader may have created its successor
			out.Needs = NeedsMachines
			return out
		}
		out.Final = append(out.Final, seen[i].UID)
	}
	switch {
	case len(out.Final) == 0:
	case c.Reasons == nil:
		out.Needs = NeedsReasons
	default:
		j.explain(c, seen, &out)
	}
	return out
}

// explain computes the final verdicts again with the events and the state of the node class: these may name the cause.
func (j *Judge) explain(c *Case, seen []refusal.Observation, out *Judgement) {
	for i, name := range c.Names {
		machine := &out.Machines[i]
		if !machine.Verdict.Final {
			continue
		}
		seen[i].Events, seen[i].Class, seen[i].ClassMessage = c.Reasons.Events, c.Reasons.Class, c.Reasons.ClassMessage
		machine.Verdict = refusal.Escalate(j.verdict(c.Machines.Named(name), seen[i], out), c.Reasons.Past)
		if c.Attempt.ReadyTime == nil && HasLaunched(c.Attempt, name) {
			machine.Verdict = machine.Verdict.InPart()
		}
		machine.AskAgain = j.mayAskAgain(machine.Verdict, seen[i].Offering, c.Reasons.Past)
	}
}

// verdict classifies one machine; machine is nil if the cache has none. A machine counts as lost if it is broken, if
// the cloud is about to reclaim it, or if its node has not been Ready for too long.
func (j *Judge) verdict(machine *capacity.Machine, seen refusal.Observation, out *Judgement) refusal.Verdict {
	verdict := j.Rules.Classify(seen, j.Deadlines, j.Now)
	if verdict.Final || machine == nil || machine.Deleting || machine.NodeName == "" {
		return verdict
	}
	fault := j.Nodes.Fault(machine, j.Now)
	if fault.Unheard != "" {
		out.Unheard = fault.Unheard
	}
	switch {
	case fault.Message == "":
		return verdict
	case j.Now.Before(fault.Deadline):
		verdict.LookAgain = Earliest(verdict.LookAgain, fault.Deadline)
		return verdict
	}
	gone := seen
	gone.GoneAt, gone.WasUsable = j.Now, true
	lost := j.Rules.Classify(gone, j.Deadlines, j.Now)
	lost.Message = fault.Message
	return lost
}

// mayAskAgain reports whether another machine may be requested at once after a verdict.
func (j *Judge) mayAskAgain(verdict refusal.Verdict, offer refusal.Offering, past []refusal.Attempt) bool {
	past = append(slices.Clone(past), refusal.Attempt{
		Asker: j.Asker, Offering: offer, Started: j.Now, Ended: j.Now,
		Cause: verdict.Cause, Scope: verdict.Scope, Cooldown: verdict.Cooldown, Guessed: verdict.Guessed,
	})
	_, _, isCooling := refusal.NewCooldowns(past).Active(j.Now, j.Asker, offer)
	return verdict.Cause != refusal.Misconfigured && !isCooling
}

func (j *Judgement) lookAgain(after time.Duration) {
	if after > 0 && (j.LookAgain == 0 || after < j.LookAgain) {
		j.LookAgain = after
	}
}

// Observed is one machine of a case.
type Observed struct {
	Machine
	refusal.Observation
	// LookAgain is the time until the cache should show the machine; 0 if the cache shows it, or if it was never
	// created.
	LookAgain time.Duration
	Needs     Need
}

// Observe describes one machine of a case. A machine that the cache does not show has vanished only if the API server
// does not serve it either.
func (j *Judge) Observe(c *Case, name string) Observed {
	out := Observed{Observation: refusal.Observation{
		Provider: j.Provider, Offering: c.Offering, CreatedAt: c.Attempt.StartTime.Time, GPUsWanted: c.GPUs,
	}}
	out.Name = name
	Recall(&out.Observation, c.Attempt, name)
	machine := c.Machines.Named(name)
	if machine != nil && !slices.Contains(c.Lost, machine.UID) {
		isRecorded := machine.UID == out.UID // the record may be of an earlier machine of that name
		out.see(machine)
		out.WasUsable = out.WasUsable && isRecorded || wasInReady(c.Attempt, out.CreatedAt)
		return out
	}
	out.WasUsable = out.WasUsable || wasInReady(c.Attempt, out.CreatedAt)
	// A machine without a recorded UID never existed, for example because the plan has grown since. An adopted attempt
	// that serves has no records at all, so its machines may have existed.
	if out.UID == "" && (c.Attempt.ReadyTime == nil || len(c.Attempt.Claims) > 0) {
		return out
	}
	out.Existed = true
	lag := CacheLag - j.Now.Sub(c.Attempt.StartTime.Time)
	switch {
	case lag > 0:
		out.Stands, out.LookAgain = true, lag
	case !c.IsConfirmed:
		out.Needs = NeedsMachines
	default:
		out.GoneAt = j.Now
	}
	return out
}

// see copies the cache's view of a machine.
func (o *Observed) see(machine *capacity.Machine) {
	o.Stands, o.Existed, o.Arriving = !machine.Deleting, true, !machine.Initialized
	o.UID, o.GoneAt = machine.UID, machine.DeletingSince
	if machine.CreatedAt.After(o.CreatedAt) { // the API server's clock may be behind ours
		o.CreatedAt = machine.CreatedAt
	}
	o.Launched, o.Registered, o.Initialized = machine.Words.Launched, machine.Words.Registered, machine.Words.Initialized
	o.ProviderID, o.NodeName, o.GPUs = machine.ProviderID, machine.NodeName, machine.GPUs
}
