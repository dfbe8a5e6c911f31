// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// A program can end the kubelet of its node, for example by using up the memory, and would do that on each new machine.
// So the loss of a machine because its node is silent counts towards the bound on faults. A machine without a node, one
// that its provisioner deletes, and one with an announced end are not bounded: the cloud has removed them, or will.
//
// Silences that overlap count once. Usually they have one cause outside of the machines, such as the outage of a zone. A
// later machine cannot have been silent by then, so the bound still holds.

// WithholdSilent keeps machines with silent nodes while the bound on faults has no room. It bounds only the newest open
// attempt: the loss of an earlier one buys nothing, because its successors are being acquired. WithholdSilent returns
// the time to the next look; 0 for never.
func (a Attempts) WithholdSilent(machines Machines, nodes *Nodes, now time.Time) time.Duration {
	var next time.Time
	for i := range machines {
		machine := &machines[i]
		silence, isSilent := nodes.silence(machine, now)
		open := a.openOf(machine)
		if !isSilent || open == nil {
			continue
		}
		machine.Withheld = "" // the silence is worse than a fault that its node reported before
		if open == a.Open()[len(a.Open())-1] && !a.overlaps(machine) {
			next = Earliest(next, a.withhold(machine, silence.Message, now))
		}
	}
	return lookAt(next, now)
}

// giveUp records the replacement of lost machines of the open attempt. It reports whether it changed the record.
func (p *pass) giveUp(lost []Machine) (isNew bool) {
	open := p.Open()
	isNew = p.countSilences(open)
	for _, gone := range lost {
		if machine := p.Machines.Named(gone.Name); machine != nil {
			isNew = giveUp(open, p.Judge.Now, string(machine.UID)) || isNew
		}
	}
	return isNew
}

// countSilences records that silent machines of an attempt are lost, and reports whether one counts now.
func (p *pass) countSilences(open *v1beta1.Attempt) (hasCounted bool) {
	now := p.Judge.Now
	for i := range p.Machines {
		machine := &p.Machines[i]
		silence, isSilent := p.Judge.Nodes.silence(machine, now)
		isLost := isSilent && machine.Withheld == "" && !now.Before(silence.Deadline)
		if isLost && slices.Contains(open.NodeClaims, machine.Name) && !p.Attempts.overlaps(machine) {
			record(open, machine, silence.Message, now)
			hasCounted = true
		}
	}
	return hasCounted
}

// silence returns the defect of a machine because its node is silent. It returns false if the silence does not count, or
// if the machine is replaced for a fault anyway.
func (n *Nodes) silence(machine *capacity.Machine, now time.Time) (Fault, bool) {
	if machine.NodeSince.IsZero() || machine.Deleting || machine.Fault.HasExpired(now) {
		return Fault{}, false
	}
	out := n.notReady(machine, now)
	return out, out.Message != ""
}

// overlaps reports whether a machine's node was already silent when the last fault counted.
func (a Attempts) overlaps(machine *capacity.Machine) bool {
	faults := a.faultsSince(time.Time{})
	return len(faults) > 0 && faults[len(faults)-1].Time.After(machine.NodeSince)
}
