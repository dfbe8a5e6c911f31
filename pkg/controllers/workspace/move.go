// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/modelberth/modelberth/pkg/workload"
)

// restartLimit is how long a pod may take to answer again and still count as one that serves.
const restartLimit = 5 * time.Minute

// running is what the pods are to run now.
func (a *acceptance) running() *revision {
	if a.former != nil {
		return a.former
	}
	return a.revision
}

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

// isServing says whether the pods answer, or do so again shortly.
func (s *scope) isServing(now time.Time) bool {
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.Name != s.ws.Name+"-0" {
			continue
		}
		since := pod.CreationTimestamp.Time
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.LastTransitionTime.After(since) {
				since = condition.LastTransitionTime.Time
			}
		}
		return isPodReady(pod) || now.Sub(since) < restartLimit
	}
	return false
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
