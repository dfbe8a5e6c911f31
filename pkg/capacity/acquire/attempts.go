// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package acquire decides how one Workspace gets its machines: the verdict on each machine, the record of each
// attempt, and the next step: to wait, to end an attempt, to release machines, to begin an attempt, or to stop until a
// person has acted. A Workspace holds the machines of two attempts at once in one case only: the machines of one
// attempt serve while another plan acquires its own.
//
// The package is pure: callers pass their observations and the current time as values, and get values back. It must
// not depend on how machines are created, how plans are found, or how a status is written.
package acquire

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/request"
)

// Bounds of the attempts in a status, as in the schema. The cooldown of a machine type grows with each refusal in a
// row, and after a restart only the status has the count. With a limit of ten attempts, six broken offers displaced
// each other, and the seventh, a working one, was never requested.
const (
	attemptLimit    = 20
	claimLimit      = 1000
	endedClaimLimit = 64
)

// faultPeriod is how long a fault counts towards faultBound.
const faultPeriod = 24 * time.Hour

// Attempts are the attempts of one Workspace, oldest first. An attempt without a reason is open: it is acquiring its
// machines, or has them. At most two are open: the attempt of the serving machines, and a later one for their
// successors.
type Attempts []v1beta1.Attempt

// Clone returns a deep copy.
func (a Attempts) Clone() []v1beta1.Attempt {
	return (&v1beta1.WorkspaceStatus{Attempts: a}).DeepCopy().Attempts
}

// Begin appends an open attempt. To stay within the schema's bounds, it drops surplus names of machines and the oldest
// ended attempts. It keeps attempts with faults that still count towards faultBound.
func (a *Attempts) Begin(begun v1beta1.Attempt) {
	begun.NodeClaims = Names(begun.NodeClaims)
	begun.StartTime = begun.StartTime.Rfc3339Copy()
	*a = append(*a, begun)
	for over := len(*a) - attemptLimit; over > 0; over-- {
		oldest := slices.IndexFunc(*a, func(attempt v1beta1.Attempt) bool {
			return attempt.Reason != "" && len(Attempts{attempt}.faultsSince(begun.StartTime.Add(-faultPeriod))) == 0
		})
		if oldest < 0 {
			return // no open attempt is ever lost
		}
		*a = slices.Delete(*a, oldest, oldest+1)
	}
}

// faultsSince returns the faults of all attempts after a time, oldest first.
func (a Attempts) faultsSince(since time.Time) []v1beta1.AttemptFault {
	var out []v1beta1.AttemptFault
	for i := range a {
		for _, fault := range a[i].Faults {
			if fault.Time.After(since) {
				out = append(out, fault)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b v1beta1.AttemptFault) int { return a.Time.Compare(b.Time.Time) })
	return out
}

// NewAttempt returns an attempt to acquire the machines of a plan.
func (s *Snapshot) NewAttempt(made *Plan, number int32, names []string, start time.Time) v1beta1.Attempt {
	plan := &made.Plan
	return v1beta1.Attempt{
		Number: number, Revision: made.Name, NodeClaims: names, StartTime: metav1.NewTime(start),
		InstanceType: plan.InstanceType, Zone: Place(plan.Zones), CapacityType: plan.CapacityType,
		Retry: Retry(s.Workspace), NodeClassName: s.Lookup.Class(made),
	}
}

// Names returns the first names, as many as an open attempt may list.
func Names(names []string) []string { return names[:min(len(names), claimLimit)] }

// Last returns the attempt that began last, or nil.
func (a Attempts) Last() *v1beta1.Attempt {
	if len(a) == 0 {
		return nil
	}
	return &a[len(a)-1]
}

// NextNumber returns the number of the next attempt, from 1.
func (a Attempts) NextNumber() int32 {
	if last := a.Last(); last != nil {
		return last.Number + 1
	}
	return 1
}

// Open returns all open attempts, oldest first.
func (a Attempts) Open() []*v1beta1.Attempt {
	var open []*v1beta1.Attempt
	for i := range a {
		if a[i].Reason == "" {
			open = append(open, &a[i])
		}
	}
	return open
}

// OpenNumber returns the open attempt with that number, or nil.
func (a Attempts) OpenNumber(number int32) *v1beta1.Attempt {
	for _, open := range a.Open() {
		if open.Number == number {
			return open
		}
	}
	return nil
}

// OpenBut returns the newest open attempt whose number differs from the given one, or nil.
func (a Attempts) OpenBut(number int32) *v1beta1.Attempt {
	for _, open := range slices.Backward(a.Open()) {
		if open.Number != number {
			return open
		}
	}
	return nil
}

// LatestBut returns the newest open attempt whose number differs from the given one, else the last attempt if that has
// ended, or nil.
func (a Attempts) LatestBut(number int32) *v1beta1.Attempt {
	if open := a.OpenBut(number); open != nil {
		return open
	}
	if last := a.Last(); last != nil && last.Reason != "" {
		return last
	}
	return nil
}

// IsNamed reports whether an attempt names a machine.
func (a Attempts) IsNamed(machine string) bool {
	return slices.ContainsFunc(a, func(attempt v1beta1.Attempt) bool { return slices.Contains(attempt.NodeClaims, machine) })
}

// IsComplete reports whether a machine belongs to an open attempt that has had all of its machines. A machine without
// an attempt counts as complete.
func (a Attempts) IsComplete(machine string) bool {
	attempt := a.Of(machine)
	return attempt == nil || attempt.ReadyTime != nil && attempt.Reason == ""
}

// Known returns the machines of open attempts with a recorded UID, except lost ones.
func (a Attempts) Known() []capacity.Created {
	var out []capacity.Created
	for _, open := range a.Open() {
		for _, claim := range open.Claims {
			if claim.UID != "" {
				out = append(out, capacity.Created{Name: claim.Name, UID: types.UID(claim.UID)})
			}
		}
	}
	return out
}

// Lost returns the machines that open attempts have lost while they keep the others.
func (a Attempts) Lost() []capacity.Created {
	var out []capacity.Created
	for _, open := range a.Open() {
		for _, claim := range open.Claims {
			if lost := claim.Lost; lost != nil {
				out = append(out, capacity.Created{Name: claim.Name, UID: types.UID(lost.UID), LostAt: lost.Time.Time})
			}
		}
	}
	return out
}

// LostUIDs returns the UIDs of the machines that open attempts have lost while they keep the others.
func (a Attempts) LostUIDs() []types.UID {
	var out []types.UID
	for _, lost := range a.Lost() {
		out = append(out, lost.UID)
	}
	return out
}

// Noted returns all recorded machines of open attempts: the known ones and the lost ones.
func (a Attempts) Noted() []capacity.Created { return append(a.Known(), a.Lost()...) }

// Note records the observed state of the named machines in an open attempt, except lost ones. gpus is the number of
// GPUs that each machine should have.
func (a Attempts) Note(open *v1beta1.Attempt, machines []capacity.Machine, names []string, gpus int, now time.Time) {
	lost := a.LostUIDs()
	for i := range machines {
		machine := &machines[i]
		if slices.Contains(names, machine.Name) && machine.UID != "" && !slices.Contains(lost, machine.UID) {
			noteMachine(open, machine, gpus, now)
		}
	}
}

// ReadyTime returns when the machines of an attempt became usable; false if they never did, or if there is no such
// attempt.
func (a Attempts) ReadyTime(number int32) (time.Time, bool) {
	for i := range a {
		if a[i].Number == number && a[i].ReadyTime != nil {
			return a[i].ReadyTime.Time, true
		}
	}
	return time.Time{}, false
}

// Release ends all open attempts because their machines are no longer wanted. Faults for which no machine was bought no
// longer count.
func (a Attempts) Release(why string, generation int64, now time.Time) {
	for _, open := range a.Open() {
		open.Faults = slices.DeleteFunc(open.Faults, func(fault v1beta1.AttemptFault) bool { return fault.ReplacedTime == nil })
		Close(open, Released(why), generation, now)
	}
}

// Close ends an attempt with a verdict. Generation is that of the Workspace. The attempt keeps the records of its lost
// machines, because Remember reads them.
func Close(open *v1beta1.Attempt, verdict refusal.Verdict, generation int64, now time.Time) {
	ended := Seconds(now)
	open.EndTime, open.Generation = &ended, generation
	open.Reason = string(verdict.Cause)
	open.Message, open.Fix = shorten(verdict.Message, messageLimit), shorten(verdict.Fix, fixLimit)
	open.MendedBy, open.NodeClass = string(verdict.MendedBy), string(verdict.Class)
	open.Claims = slices.DeleteFunc(open.Claims, func(claim v1beta1.AttemptClaim) bool { return claim.Lost == nil })
	open.NodeClaims = open.NodeClaims[:min(len(open.NodeClaims), endedClaimLimit)]
	if verdict.Cooldown > 0 {
		open.Scope = verdict.Scope.String()
		open.Cooldown = &metav1.Duration{Duration: verdict.Cooldown}
		open.Guessed = verdict.Guessed
	}
}

// Released is the verdict on an attempt whose machines are no longer wanted.
func Released(why string) refusal.Verdict {
	return refusal.Verdict{Cause: v1beta1.ReasonReleased, Message: why}
}

// retryLimit bounds the recorded value of the retry annotation.
const retryLimit = 64

// Retry returns the value of the annotation with which a user requests another try of refused machine types.
func Retry(ws *v1beta1.Workspace) string {
	return request.Shorten(ws.Annotations[v1beta1.AnnotationRetryCapacity], retryLimit)
}

// IsRetry reports whether the user requests another try of refused machine types. Each value of the annotation counts
// for one attempt.
func (a Attempts) IsRetry(ws *v1beta1.Workspace) bool {
	value, last := Retry(ws), a.Last()
	return value != "" && (last == nil || last.Retry != value)
}
