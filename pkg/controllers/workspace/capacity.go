// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/request"
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

// cacheLag is how long a machine that was asked for may be missing from the cache before the API
// server is asked whether it has vanished.
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
	number, err := r.nextAttempt(ctx, s)
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
		Confirm:      func(ctx context.Context) error { return r.checkNewest(ctx, s) },
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

// checkNewest returns a conflict if the Workspace has been written since this pass read it. A machine
// may vanish sooner than the cache shows the attempt that it came from, and would be asked for again
// without a pause.
func (r *Reconciler) checkNewest(ctx context.Context, s *scope) error {
	newest := &v1beta1.Workspace{}
	if err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(s.ws), newest)); err != nil {
		return fmt.Errorf("reading the newest version: %w", err)
	}
	if newest.ResourceVersion != s.ws.ResourceVersion {
		return apierrors.NewConflict(v1beta1.GroupVersion().WithResource("workspaces").GroupResource(), s.ws.Name,
			errors.New("it has been written since this pass read it"))
	}
	return nil
}

// nextAttempt returns the number that machines asked for in this pass belong to, or an error while
// it is too early to ask.
func (r *Reconciler) nextAttempt(ctx context.Context, s *scope) (int32, error) {
	last := s.lastAttempt()
	if last == nil {
		return 1, nil
	}
	if last.Reason == "" {
		lost, err := r.hasLost(ctx, s, last)
		if err != nil || !lost {
			return last.Number, err
		}
		s.lost = true
	}
	if last.Reason == reasonReleased || last.InstanceType != s.revision.Plan.InstanceType {
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

// hasLost says whether machines of an attempt have vanished, or returns an error while that cannot
// be told. A machine counts as vanished only if the API server itself says so.
func (r *Reconciler) hasLost(ctx context.Context, s *scope, attempt *v1beta1.Attempt) (bool, error) {
	missing := slices.DeleteFunc(slices.Clone(attempt.NodeClaims), s.holds)
	if len(missing) == 0 {
		return false, nil
	}
	wait := cacheLag - r.Clock.Since(attempt.StartTime.Time)
	if wait <= 0 {
		held, err := r.Provisioner.Held(ctx, s.owner)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(missing, func(name string) bool { return !slices.Contains(held, name) }) {
			return true, nil
		}
		wait = cacheLag
	}
	return false, &waitingError{message: "waiting for the machines that were asked for to show", after: wait}
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
		last.Message = request.Shorten("the machines disappeared: "+strings.Join(last.NodeClaims, ", "), attemptMessageLimit)
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
