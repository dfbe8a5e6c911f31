// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// Bounds of what the status says about attempts, as in the schema.
const (
	attemptLimit        = 10
	attemptClaimLimit   = 64
	attemptMessageLimit = 1024
)

// A machine that vanished is asked for again after a while that doubles with every failure.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
)

// cacheLag is how long a machine that was asked for may be missing from the cache before it counts
// as vanished.
const cacheLag = 3 * time.Second

// Reasons that an attempt ends with.
const (
	// reasonVanished ends an attempt whose machines disappeared. Karpenter deletes a claim that no
	// offering can serve, often without a word on it.
	reasonVanished = "Vanished"
	// reasonReleased ends an attempt whose machines were let go.
	reasonReleased = "Released"
)

// ensureCapacity gets the machines of the accepted plan.
func (r *Reconciler) ensureCapacity(ctx context.Context, s *scope) error {
	plan := &s.revision.Plan
	if s.planErr != nil && len(s.servingMachines()) < plan.Nodes {
		return s.planErr // what runs goes on; nothing is bought for a spec without a plan
	}
	number, err := r.nextAttempt(s)
	if err != nil {
		s.capacityErr = err
		return err
	}
	outcome, err := r.Provisioner.Ensure(ctx, capacity.Request{
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
	if len(outcome.Released) > 0 {
		log.FromContext(ctx).Info("released machines for another plan", "nodeClaims", outcome.Released)
		s.released = "the machines were let go for another plan"
	}
	if len(outcome.Created) > 0 {
		log.FromContext(ctx).Info("asked for machines", "nodeClaims", outcome.Created, "instanceType", plan.InstanceType)
		s.attempt = s.newAttempt(number, outcome.Created, r.Clock.Now())
	}
	if err != nil {
		s.capacityErr = classify(err)
	}
	return s.capacityErr
}

// nextAttempt returns the number that machines asked for in this pass belong to, or an error while
// it is too early to ask.
func (r *Reconciler) nextAttempt(s *scope) (int32, error) {
	last := s.lastAttempt()
	if last == nil {
		return 1, nil
	}
	missing := slices.DeleteFunc(slices.Clone(last.NodeClaims), s.holds)
	age := r.Clock.Since(last.StartTime.Time)
	switch {
	case last.Reason == "" && len(missing) == 0:
		return last.Number, nil
	case last.Reason == "" && age < cacheLag:
		return 0, &waitingError{message: "waiting for the machines that were asked for to show", after: cacheLag - age}
	case last.Reason == reasonReleased:
		return last.Number + 1, nil
	}
	s.lost = last.Reason == ""
	if last.InstanceType != s.revision.Plan.InstanceType {
		return last.Number + 1, nil
	}
	next := last.StartTime.Add(retryDelay(s.attempts()))
	if wait := next.Sub(r.Clock.Now()); wait > 0 {
		return 0, &waitingError{
			message: fmt.Sprintf("%s disappeared, most often for lack of capacity or quota; asked for again from %s",
				strings.Join(last.NodeClaims, ", "), next.UTC().Format(time.TimeOnly+" MST")),
			after: wait,
		}
	}
	return last.Number + 1, nil
}

func (s *scope) newAttempt(number int32, names []string, start time.Time) *v1beta1.Attempt {
	plan := &s.revision.Plan
	return &v1beta1.Attempt{
		Number:       number,
		InstanceType: plan.InstanceType,
		NodeClaims:   names[:min(len(names), attemptClaimLimit)],
		CapacityType: plan.CapacityType,
		StartTime:    metav1.NewTime(start),
	}
}

// lastAttempt returns the newest attempt, or nil.
func (s *scope) lastAttempt() *v1beta1.Attempt {
	if count := len(s.ws.Status.Attempts); count > 0 {
		return &s.ws.Status.Attempts[count-1]
	}
	return nil
}

// retryDelay doubles with every attempt in a row whose machines vanished.
func retryDelay(attempts []v1beta1.Attempt) time.Duration {
	delay := firstRetry / 2
	for i := len(attempts) - 1; i >= 0 && attempts[i].Reason == reasonVanished && delay < lastRetry; i-- {
		delay *= 2
	}
	return min(max(delay, firstRetry), lastRetry)
}

// attempts returns the attempts as they stand after this pass.
func (s *scope) attempts() []v1beta1.Attempt {
	attempts := s.ws.Status.DeepCopy().Attempts
	var last *v1beta1.Attempt
	if len(attempts) > 0 {
		last = &attempts[len(attempts)-1]
	}
	isOpen := last != nil && last.Reason == ""
	switch {
	case isOpen && s.released != "":
		last.Reason, last.Message = reasonReleased, s.released
	case isOpen && s.lost:
		last.Reason = reasonVanished
		last.Message = cut("the machines disappeared: "+strings.Join(last.NodeClaims, ", "), attemptMessageLimit)
	}
	begun := s.attempt
	if begun == nil {
		begun = s.unrecorded(last)
	}
	if begun == nil {
		return attempts
	}
	if isOpen && last.Number == begun.Number { // one of several machines was missing
		names := append(slices.Clone(last.NodeClaims), begun.NodeClaims...)
		slices.Sort(names)
		names = slices.Compact(names)
		last.NodeClaims = names[:min(len(names), attemptClaimLimit)]
		return attempts
	}
	attempts = append(attempts, *begun)
	return attempts[max(0, len(attempts)-attemptLimit):]
}

// unrecorded makes up the attempt that held machines came from, if the status that named it was
// lost; nil where nothing is missing.
func (s *scope) unrecorded(last *v1beta1.Attempt) *v1beta1.Attempt {
	machines := slices.DeleteFunc(s.servingMachines(), func(machine capacity.Machine) bool {
		return last != nil && !machine.CreatedAt.After(last.StartTime.Time)
	})
	if len(machines) == 0 || s.ws.Suspend || (last != nil && last.Reason == "") {
		return nil
	}
	number, start := int32(1), machines[0].CreatedAt
	if last != nil {
		number = last.Number + 1
	}
	var names []string
	for _, machine := range machines {
		names = append(names, machine.Name)
		if machine.CreatedAt.Before(start) {
			start = machine.CreatedAt
		}
	}
	slices.Sort(names)
	return s.newAttempt(number, names, start)
}
