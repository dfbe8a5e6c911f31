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

// restartLimit is how long a restarting pod still counts as serving.
const restartLimit = 5 * time.Minute

// move decides whether the pods switch to the accepted revision, and their machines. They stay until all machines of
// the accepted plan are usable.
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
		s.former = s.revisionOf(s.statefulSet) // more machines beside its own
	case latest != nil && hasMoved:
		s.runsOn = latest.Number
	}
}

// servesSpec reports whether the pods run the current spec while other machines are acquired for them.
func (s *scope) servesSpec() bool {
	if s.heldAttempt() == nil || s.former == nil || s.revision == nil {
		return false
	}
	return s.former.Name == s.revision.Name ||
		s.former.Inputs != nil && s.revision.Inputs != nil && equality.Semantic.DeepEqual(*s.former.Inputs, *s.revision.Inputs)
}

// meanwhile describes the serving attempt while other machines are acquired; empty if nothing serves.
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

// isVacated reports whether all pods have left the held machines.
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

// isMoved reports whether the pods are pinned to other machines than the held ones.
func (s *scope) isMoved() bool {
	return s.surge.Serving > 0 && s.pinnedTo(s.statefulSet) > s.surge.Serving
}

// pinnedTo returns the attempt to which the pods of a set are pinned; 0 for none or an unknown attempt. Numbers begin
// anew if a status is lost while nothing is held, and the cache may still show the former set.
func (s *scope) pinnedTo(set *appsv1.StatefulSet) int32 {
	number := workload.PinnedAttempt(set)
	isHeld := slices.ContainsFunc(s.machines.Standing(), func(machine capacity.Machine) bool { return machine.Attempt == number })
	if number < s.attempts.NextNumber() || isHeld {
		return number
	}
	return 0
}

// moveDeadline returns the time until which the pods may take to switch.
func (s *scope) moveDeadline() time.Time {
	if ready, ok := s.attempts.ReadyTime(workload.PinnedAttempt(s.statefulSet)); ok {
		return ready.Add(moveLimit)
	}
	return time.Time{}
}
