// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// attemptLimit is how many attempts the status keeps.
const attemptLimit = 10

// A machine that vanished is asked for again after a while that doubles with every failure.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
)

// reasonVanished ends an attempt whose machines disappeared. Karpenter deletes a claim that no
// offering can serve, often without a word on it.
const reasonVanished = "Vanished"

// reasonReleased ends an attempt whose machines were let go.
const reasonReleased = "Released"

// ensureCapacity gets the machines of the accepted plan.
func (r *Reconciler) ensureCapacity(ctx context.Context, s *scope) error {
	held := len(s.heldMachines())
	number := int32(1)
	if last := s.lastAttempt(); last != nil {
		number = last.Number
		if held == 0 {
			if wait := retryDelay(s.ws.Status.Attempts) - r.Clock.Since(last.StartTime.Time); last.Reason == "" && wait > 0 {
				return &waitingError{message: "waiting before asking for machines again", after: wait}
			}
			number++
		}
	}
	plan := &s.revision.Plan
	created, err := r.Provisioner.Ensure(ctx, capacity.Request{
		Owner:        s.owner,
		Attempt:      number,
		InstanceType: plan.InstanceType,
		Count:        plan.Nodes,
		GPUResource:  plan.GPUResource,
		GPUs:         plan.MachineGPUs,
		DiskGiB:      plan.DiskGiB,
		CapacityType: plan.CapacityType,
		Zones:        plan.Zones,
		NodeClass:    s.revision.NodeClass,
		Labels:       s.revision.NodeLabels,
	})
	if len(created) > 0 {
		s.attempt = &v1beta1.Attempt{
			Number:       number,
			InstanceType: plan.InstanceType,
			NodeClaims:   created,
			CapacityType: plan.CapacityType,
			StartTime:    metav1.NewTime(r.Clock.Now()),
		}
	}
	if err != nil {
		s.capacityErr = classify(err)
		return s.capacityErr
	}
	return nil
}

// lastAttempt returns the newest attempt, or nil.
func (s *scope) lastAttempt() *v1beta1.Attempt {
	if count := len(s.ws.Status.Attempts); count > 0 {
		return &s.ws.Status.Attempts[count-1]
	}
	return nil
}

// retryDelay doubles with every attempt that ended without its machines having been let go by us.
func retryDelay(attempts []v1beta1.Attempt) time.Duration {
	delay := firstRetry
	for i := len(attempts) - 2; i >= 0 && attempts[i].Reason == reasonVanished && delay < lastRetry; i-- {
		delay *= 2
	}
	return min(delay, lastRetry)
}

// attempts returns the attempts as they stand after this pass.
func (s *scope) attempts() []v1beta1.Attempt {
	attempts := s.ws.Status.DeepCopy().Attempts
	last := len(attempts) - 1
	if s.released && last >= 0 && attempts[last].Reason == "" {
		attempts[last].Reason = reasonReleased
		attempts[last].Message = "the machines were let go because the Workspace is suspended"
	}
	if s.attempt == nil {
		return attempts
	}
	switch {
	case last >= 0 && attempts[last].Number == s.attempt.Number:
		// More machines for the same attempt: one of several was missing, or the plan has changed.
		attempts[last].InstanceType = s.attempt.InstanceType
		attempts[last].CapacityType = s.attempt.CapacityType
		attempts[last].NodeClaims = s.attempt.NodeClaims
		return attempts
	case last >= 0 && attempts[last].Reason == "" && attempts[last].InstanceType != s.attempt.InstanceType:
		attempts[last].Reason = reasonReleased
		attempts[last].Message = "the machines were let go for another plan"
	case last >= 0 && attempts[last].Reason == "":
		attempts[last].Reason = reasonVanished
		attempts[last].Message = fmt.Sprintf("the machines disappeared: %v", attempts[last].NodeClaims)
	}
	attempts = append(attempts, *s.attempt)
	return attempts[max(0, len(attempts)-attemptLimit):]
}
