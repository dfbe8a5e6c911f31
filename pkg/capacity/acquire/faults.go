// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
)

// The program in the pods can cause the GPU faults that nodes report, or the end of their kubelets, and it would cause
// them on each new machine. So each Workspace has a bound on faults that count. An announced end is not bounded, because
// that machine is lost in any case.
const (
	faultBound = 2
	// faultLimit is the schema's bound on the faults of an attempt.
	faultLimit = 8
)

// NoteFaults decides which faults of nodes count, and records them in the attempts before replacements are bought. A
// fault counts until its node has been healthy for a while, so one healthy observation or a further fault does not
// change the purchase. A fault of GPUs that no pod needs does not count. NoteFaults returns the time to the next look;
// 0 for never.
func (a Attempts) NoteFaults(machines Machines, plans []*render.Revision, now time.Time) time.Duration {
	a.noteReplacements(machines, now)
	var next time.Time
	for i := range machines {
		if machine := &machines[i]; !machine.Deleting {
			a.noteGPUs(machine, plans, now)
			next = Earliest(next, a.noteFault(machine, machines, plans, now))
		}
	}
	return lookAt(next, now)
}

// noteReplacements records which faults have led to a purchase, because a machine of a later attempt was launched. It
// drops faults that are gone without one, for example because a ceiling had no room: they must not count.
func (a Attempts) noteReplacements(machines Machines, now time.Time) {
	open := a.Open()
	for i, attempt := range open {
		if slices.ContainsFunc(open[i+1:], func(later *v1beta1.Attempt) bool { return machines.haveLaunched(later) }) {
			giveUp(attempt, now)
		}
		attempt.Faults = slices.DeleteFunc(attempt.Faults, func(fault v1beta1.AttemptFault) bool {
			return fault.ReplacedTime == nil && isGone(&fault, now)
		})
	}
}

// haveLaunched reports whether a machine of an attempt was ever launched.
func (m Machines) haveLaunched(attempt *v1beta1.Attempt) bool {
	return HasLaunched(attempt, "") || slices.ContainsFunc(m, func(machine capacity.Machine) bool {
		return slices.Contains(attempt.NodeClaims, machine.Name) && (machine.Launched || machine.ProviderID != "")
	})
}

// giveUp records the replacement of an attempt's machines with faults, or only of those with the given UIDs. It reports
// whether it changed the record.
func giveUp(attempt *v1beta1.Attempt, now time.Time, uids ...string) (isNew bool) {
	for i := range attempt.Faults {
		fault := &attempt.Faults[i]
		if fault.ReplacedTime == nil && (len(uids) == 0 || slices.Contains(uids, fault.UID)) {
			fault.ReplacedTime, isNew = new(Seconds(now)), true
		}
	}
	return isNew
}

// isGone reports whether the node of a fault has been healthy for long enough.
func isGone(fault *v1beta1.AttemptFault, now time.Time) bool {
	return fault.HealthySince != nil && !now.Before(fault.HealthySince.Add(nodehealth.Recovery))
}

// noteFault sets the fault of a machine: the reported one, or an earlier one that still counts, or none if the bound
// withholds it. It returns when that may change; zero for never. All members of a group run one program, so their
// simultaneous faults count once.
func (a Attempts) noteFault(machine *capacity.Machine, machines Machines, plans []*render.Revision, now time.Time) time.Time {
	open := a.openOf(machine)
	if open == nil || machine.Fault.Announced {
		return time.Time{}
	}
	known := counted(open, machine, now)
	switch hasFault := machine.Fault.Message != ""; {
	case known != nil && (hasFault || !isReporting(machine)):
		known.HealthySince = nil
		machine.Fault = nodehealth.Fault{Message: known.Message, Since: known.Time.Time}
		return time.Time{}
	case known != nil:
		if known.HealthySince == nil {
			known.HealthySince = new(Seconds(now))
		}
		machine.Fault = nodehealth.Fault{Message: known.Message, Since: known.Time.Time}
		return known.HealthySince.Add(nodehealth.Recovery)
	case !machine.Fault.HasExpired(now), isInGroup(machine, plans) && hasCounted(open, machines, now):
		return time.Time{}
	}
	return a.admit(open, machine, now)
}

// isInGroup reports whether a machine fits the plan of a group.
func isInGroup(machine *capacity.Machine, plans []*render.Revision) bool {
	return slices.ContainsFunc(plans, func(made *render.Revision) bool { return made.Worker != nil && Fits(machine, made) })
}

// hasCounted reports whether an attempt has a present machine with a fault that counts.
func hasCounted(open *v1beta1.Attempt, machines Machines, now time.Time) bool {
	return slices.ContainsFunc(machines, func(machine capacity.Machine) bool { return counted(open, &machine, now) != nil })
}

// admit records a fault that counts from now on, or withholds it until the bound has room.
func (a Attempts) admit(open *v1beta1.Attempt, machine *capacity.Machine, now time.Time) time.Time {
	if until := a.withhold(machine, machine.Fault.Message, now); !until.IsZero() {
		machine.Fault = nodehealth.Fault{}
		return until
	}
	record(open, machine, machine.Fault.Message, now)
	return time.Time{}
}

// record adds a fault that counts to an attempt.
func record(open *v1beta1.Attempt, machine *capacity.Machine, message string, now time.Time) {
	from := now
	if joined := machine.Words.Initialized.Since; joined.After(from) { // another program's clock is ahead
		from = joined
	}
	open.Faults = append(open.Faults, v1beta1.AttemptFault{
		UID: string(machine.UID), Node: machine.NodeName, Time: Seconds(from), Message: shorten(message, heardMessageLimit),
	})
	open.Faults = open.Faults[max(0, len(open.Faults)-faultLimit):]
}

// withhold keeps a machine despite a fault if the bound has no room, with an explanation and the remedy. It returns when
// the bound has room again; zero if it has room now.
func (a Attempts) withhold(machine *capacity.Machine, fault string, now time.Time) time.Time {
	recent := a.faultsSince(now.Add(-faultPeriod))
	if len(recent) < faultBound {
		return time.Time{}
	}
	recent = recent[len(recent)-faultBound:]
	until := recent[0].Time.Add(faultPeriod)
	nodes := make([]string, len(recent))
	for i, known := range recent {
		nodes[i] = fmt.Sprintf("%s at %s", known.Node, progress.Clock(known.Time.Time))
	}
	machine.Withheld = fmt.Sprintf("%s; the machine stays, because %d faults counted within 24 hours (%s), so the engine itself "+
		"may be the cause: check the logs of the pods; to replace the machine before %s, delete node %s",
		fault, len(recent), strings.Join(nodes, ", "), progress.Clock(until), machine.NodeName)
	return until
}

// openOf returns the open attempt with a machine, or nil.
func (a Attempts) openOf(machine *capacity.Machine) *v1beta1.Attempt {
	for _, open := range a.Open() {
		if slices.Contains(open.NodeClaims, machine.Name) {
			return open
		}
	}
	return nil
}

// counted returns the fault for which a machine is already being replaced, or nil. A fault from before the machine's
// node was usable is about an earlier machine: in package pods, successors have the same UID.
func counted(open *v1beta1.Attempt, machine *capacity.Machine, now time.Time) *v1beta1.AttemptFault {
	for i := range slices.Backward(open.Faults) {
		fault := &open.Faults[i]
		if fault.UID != string(machine.UID) || fault.Node != machine.NodeName || fault.Time.Time.Before(machine.Words.Initialized.Since) {
			continue
		}
		if isGone(fault, now) {
			return nil
		}
		return fault
	}
	return nil
}
