// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/workload"
)

// restartLimit is how long a pod may take to answer again and still count as one that serves.
const restartLimit = 5 * time.Minute

// move decides whether the pods go over to the accepted revision, and which machines they may run on. They
// stay where they are until all machines of the accepted plan are usable.
func (s *scope) move() {
	s.former, s.runsOn = nil, 0
	if s.statefulSet != nil && !s.isOnNodes() && s.surge.IsPossible {
		s.decideMove()
	}
}

func (s *scope) decideMove() {
	held, latest := s.heldAttempt(), s.openAttempt()
	wasThere := latest != nil && latest.ReadyTime != nil
	isThere := wasThere && s.areMachinesUsable()
	s.runsOn = workload.PinnedAttempt(s.statefulSet)
	switch hasMoved := s.runsOn > 0; {
	case held != nil && isThere && s.planErr == nil: // an edit without a plan moves nothing that serves
		s.runsOn = latest.Number
	case held != nil:
		s.former = s.revisionOf(s.statefulSet)
		if hasMoved && !s.isMoved() {
			s.runsOn = held.Number
		}
	case wasThere && !isThere && s.leader() != nil:
		s.former = s.revisionOf(s.statefulSet) // more machines beside those that it has
	case latest != nil && hasMoved:
		s.runsOn = latest.Number
	}
}

// servesSpec says that the pods run what the spec asks for, while other machines are got for them.
func (s *scope) servesSpec() bool {
	if s.heldAttempt() == nil || s.former == nil || s.revision == nil {
		return false
	}
	return s.former.Name == s.revision.Name ||
		s.former.Inputs != nil && s.revision.Inputs != nil && equality.Semantic.DeepEqual(*s.former.Inputs, *s.revision.Inputs)
}

// meanwhile says what serves while other machines are got; empty where nothing does.
func (s *scope) meanwhile() string {
	held := s.heldAttempt()
	if held == nil || s.former == nil {
		return ""
	}
	text := fmt.Sprintf("; meanwhile attempt %d (%s) continues to serve", held.Number, held.InstanceType)
	if s.surge.Trouble != "" {
		text += ", as long as it can: " + s.surge.Trouble
	}
	return text
}

// isVacated says whether all pods have moved away from the machines that are held.
func (s *scope) isVacated() bool {
	if !s.isMoved() || !s.isRolledOut() {
		return false
	}
	return !slices.ContainsFunc(s.pods, func(pod corev1.Pod) bool {
		return slices.ContainsFunc(s.machines, func(machine capacity.Machine) bool {
			return s.isHeld(machine.Name) && machine.NodeName != "" && machine.NodeName == pod.Spec.NodeName
		})
	})
}

// isMoved says whether the pods are told to run on other machines than those that are held.
func (s *scope) isMoved() bool {
	return s.surge.Serving > 0 && s.pinnedTo(s.statefulSet) > s.surge.Serving
}

// pinnedTo is the number of the attempt that the pods of a set are told to run on; 0 where they are told none, or one that
// nobody has begun: numbers begin anew where a status is lost while nothing is held, and the cache may still be showing the
// set of before.
func (s *scope) pinnedTo(set *appsv1.StatefulSet) int32 {
	number := workload.PinnedAttempt(set)
	isHeld := slices.ContainsFunc(s.machines.Standing(), func(machine capacity.Machine) bool { return machine.Attempt == number })
	if number < s.attempts.NextNumber() || isHeld {
		return number
	}
	return 0
}

// moveDeadline is when the pods have had time enough to move to the machines that they select.
func (s *scope) moveDeadline() time.Time {
	if ready, ok := s.attempts.ReadyTime(workload.PinnedAttempt(s.statefulSet)); ok {
		return ready.Add(moveLimit)
	}
	return time.Time{}
}
