// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"fmt"
	"slices"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

// Nodes is the state of the nodes of a Workspace's machines.
type Nodes struct {
	// Silence decides whether nodes that are not Ready count as lost.
	Silence nodehealth.Silence
	// Grace is how long a node may be not Ready before its machine counts as lost; 0 means forever.
	Grace time.Duration
	// MissingSince is the time since when the status reports nodes as not Ready; zero if it reports none.
	MissingSince time.Time
	// Excused are the names of machines whose successors are being acquired. Their faults do not count, so a broken
	// machine still serves.
	Excused []string
}

// Fault is a defect of a machine's node.
type Fault struct {
	// Message is empty if nothing is wrong, or if the defect does not count.
	Message string
	// Deadline is when the machine counts as lost.
	Deadline time.Time
	// Unheard explains why a node that is not Ready does not count as lost; empty if it counts.
	Unheard string
}

// Fault returns the defect of a machine's node. A silent node does not count while the bound on faults keeps its machine.
func (n *Nodes) Fault(machine *capacity.Machine, now time.Time) Fault {
	if fault := machine.Fault; fault.Message != "" && !slices.Contains(n.Excused, machine.Name) {
		return Fault{Message: fault.Message, Deadline: fault.Expires()}
	}
	out := n.notReady(machine, now)
	if machine.Withheld != "" && !machine.NodeSince.IsZero() {
		return Fault{Unheard: out.Unheard}
	}
	return out
}

// notReady returns the defect of a machine whose node is not Ready, or gone.
func (n *Nodes) notReady(machine *capacity.Machine, now time.Time) Fault {
	if machine.NodeReady || !machine.Initialized || n.Grace <= 0 {
		return Fault{}
	}
	out := Fault{}
	since := machine.NodeSince
	var counted time.Time
	if since.IsZero() { // it has no node
		since = n.missingSince(machine, now)
		counted = since
	} else if counted, out.Unheard = n.Silence.Counts(since); counted.IsZero() {
		return out
	}
	out.Message = fmt.Sprintf("node %s has not been Ready since %s", machine.NodeName, since.UTC().Format(time.TimeOnly+" MST"))
	out.Deadline = counted.Add(n.Grace)
	return out
}

// missingSince returns since when a machine has been known to have no node.
func (n *Nodes) missingSince(machine *capacity.Machine, now time.Time) time.Time {
	since := now
	if !n.MissingSince.IsZero() {
		since = n.MissingSince
	}
	if joined := machine.Words.Initialized.Since; joined.After(since) { // the condition may be about an earlier machine
		since = joined
	}
	return since
}
