// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// EndAttempt closes the open attempt, if there is one.
func (s *Scope) EndAttempt(verdict refusal.Verdict, now time.Time) {
	if open := s.OpenAttempt(); open != nil {
		acquire.Close(open, verdict, s.Workspace.Generation, now)
	}
}

// AddCreated adds the requested machines to the observation, as the next pass will observe them.
func (s *Scope) AddCreated(created []capacity.Created, now time.Time) {
	plan := &s.Revision.Plan
	for _, made := range created {
		s.Machines = append(s.Machines, capacity.Machine{
			Name: made.Name, UID: made.UID, InstanceType: plan.InstanceType, CapacityType: plan.CapacityType, CreatedAt: now,
		})
	}
}

// AwaitRelease explains the wait and names the remaining machines, because one of them may be stuck.
func (s *Scope) AwaitRelease(left []string) error {
	wait := s.WaitForRelease(left)
	last := s.Attempts.Last()
	switch {
	case last == nil || last.Reason == "":
		return wait
	case last.Reason == v1beta1.ReasonReleased:
		return &progress.WaitingError{Message: last.Message + "; " + wait.Error(), After: RetryRelease}
	}
	message, reason := fmt.Sprintf("%s: %s; ", last.InstanceType, last.Message), last.Reason
	switch {
	case !refusal.Cause(last.Reason).NeedsPerson():
		reason = "" // it is not final
		message += "the controller requests the next best machine type once the present machines are gone; "
	case last.Fix != "":
		message += last.Fix + "; "
	}
	return &progress.WaitingError{Reason: reason, Message: message + wait.Error(), After: RetryRelease}
}
