// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity"
)

// MoveLimit is how long the pods may take to move to new machines before a further plan releases the old ones.
const MoveLimit = 15 * time.Minute

// Switchover is the plan and the machines for the pods.
type Switchover struct {
	// Stays: the pods stay on the plan that they run, until all machines of the accepted one are usable.
	Stays bool
	// RunsOn is the number of the only attempt whose machines the pods may use; 0 allows all machines of the
	// Workspace.
	RunsOn int32
}

// Switchover decides whether the pods switch to the accepted plan and its machines. Without a plan for the current
// spec, serving pods do not move.
func (s *Snapshot) Switchover(hasPlan bool) Switchover {
	switch {
	case !s.Pods.HasSet:
		return Switchover{}
	case !s.Surge.IsPossible: // at most one attempt has machines
		return Switchover{Stays: s.Serving() != nil}
	}
	return s.switchover(hasPlan)
}

func (s *Snapshot) switchover(hasPlan bool) Switchover {
	serving, latest := s.Serving(), s.Open()
	wasThere := latest != nil && latest.ReadyTime != nil
	isThere := wasThere && s.areMachinesUsable()
	out := Switchover{RunsOn: s.Pods.Pinned}
	switch hasMoved := out.RunsOn > 0; {
	case serving != nil && isThere && hasPlan:
		out.RunsOn = latest.Number
	case serving != nil:
		out.Stays = true
		if hasMoved && !s.IsMoved() {
			out.RunsOn = serving.Number
		}
	case wasThere && !isThere && s.Pods.HasLeader:
		out.Stays = true // the accepted plan still lacks usable machines
	case latest != nil && hasMoved:
		out.RunsOn = latest.Number
	}
	return out
}

func (s *Snapshot) areMachinesUsable() bool { return s.PlannedMachines().AreUsable(&s.Accepted.Plan) }

// IsMoved reports whether the pods are pinned to the machines of an attempt later than the serving one.
func (s *Snapshot) IsMoved() bool { return s.Surge.Serving > 0 && s.pinned() > s.Surge.Serving }

// pinned returns the attempt to which the pods are pinned; 0 for none or an unknown attempt. Numbers start again at 1
// if the status is lost while no machine is held. Then the cache may still show the previous StatefulSet with a higher
// number.
func (s *Snapshot) pinned() int32 {
	number := s.Pods.Pinned
	isHeld := slices.ContainsFunc(s.Machines.Standing(), func(machine capacity.Machine) bool { return machine.Attempt == number })
	if number < s.Attempts.NextNumber() || isHeld {
		return number
	}
	return 0
}

// IsVacated reports whether all pods have left the serving machines.
func (s *Snapshot) IsVacated() bool {
	return s.IsMoved() && s.Pods.IsRolledOut && !slices.ContainsFunc(s.Machines, func(machine capacity.Machine) bool {
		return s.isServing(machine.Name) && machine.NodeName != "" && slices.Contains(s.Pods.Nodes, machine.NodeName)
	})
}

// MoveDeadline returns the time by which the pods must have moved; zero if their attempt never became ready.
func (s *Snapshot) MoveDeadline() time.Time {
	if ready, ok := s.Attempts.ReadyTime(s.Pods.Pinned); ok {
		return ready.Add(MoveLimit)
	}
	return time.Time{}
}
