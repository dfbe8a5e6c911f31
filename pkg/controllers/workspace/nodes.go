// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
)

const (
	// schedulingGrace is how long the scheduler may reject a pod for its planned node: former pods may still leave.
	schedulingGrace = 30 * time.Second
	// leftFor is how long a node is avoided after the scheduler rejected a pod for it in spite of enough free
	// resources, so that pods do not go to and fro.
	leftFor = 10 * time.Minute
	// retryNodes is when to look again whether pods have left room: no event tells.
	retryNodes = time.Minute
)

// ensureNodes keeps the Workspace on the nodes of its plan, and plans anew if one of them becomes unsuitable.
// Machines from an earlier purchase are released.
func (r *Reconciler) ensureNodes(ctx context.Context, s *scope) error {
	if len(s.machines.Standing()) > 0 || len(s.attempts.Open()) > 0 {
		s.attempts.Release("the machines were released: the plan uses existing nodes", s.ws.Generation, r.Clock.Now())
		if err := r.persist(ctx, s); err != nil {
			return err
		}
		if err := r.release(ctx, s); err != nil && !progress.IsWaiting(err) {
			return err
		}
	}
	if err := r.observeNodes(ctx, s, s.revision.Plan.NodeNames); err != nil {
		return err
	}
	problem, left, err := r.nodeProblem(ctx, s)
	if err != nil || problem == "" {
		return err
	}
	s.leftNodes = append(s.leftNodes, left...)
	return r.moveOn(ctx, s, problem)
}

// nodeProblem explains why the nodes of the plan are unsuitable; empty if they are not. It returns the nodes for
// which the scheduler rejected the pods.
func (r *Reconciler) nodeProblem(ctx context.Context, s *scope) (string, []render.LeftNode, error) {
	for _, name := range s.revision.Plan.NodeNames {
		node := s.node(name)
		if node == nil {
			isGone, err := isGone(ctx, r.Live, name)
			if err != nil || isGone {
				return fmt.Sprintf("node %s is gone", name), nil, err
			}
			s.lookAgain(acquire.CacheLag)
			continue
		}
		if problem := r.unfit(s, node); problem != "" {
			return problem, nil, nil
		}
	}
	problem, left := r.turnedDown(s)
	return problem, left, nil
}

// turnedDown returns the scheduler's message if it puts a pod of the plan on none of its nodes, and the nodes without
// a pod.
func (r *Reconciler) turnedDown(s *scope) (string, []render.LeftNode) {
	isSeen := s.statefulSet != nil && s.statefulSet.Annotations[v1beta1.AnnotationRevision] == s.revision.Name
	if !isSeen || !s.isCurrent() {
		return "", nil
	}
	now, words, taken := r.Clock.Now(), "", []string{}
	for i := range s.pods {
		pod := &s.pods[i]
		taken = append(taken, pod.Spec.NodeName)
		scheduled := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		})
		if pod.Spec.NodeName != "" || scheduled < 0 || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		condition := pod.Status.Conditions[scheduled]
		if left := condition.LastTransitionTime.Add(schedulingGrace).Sub(now); left > 0 {
			s.lookAgain(left)
			continue
		}
		words = condition.Message
	}
	if words == "" {
		return "", nil
	}
	var left []render.LeftNode
	for _, name := range s.revision.Plan.NodeNames {
		if !slices.Contains(taken, name) {
			reason := "the scheduler rejected it for the pod: " + words
			left = append(left, render.LeftNode{Name: name, Reason: reason, Until: seconds(now.Add(leftFor))})
		}
	}
	if len(left) == 0 { // pods of its own are there still: with them gone there is room
		return "", nil
	}
	return "the scheduler does not put the pod on the planned node: " + words, left
}

// moveOn plans without the unsuitable nodes, and pins that plan. If there is none, the old plan stays until something
// changes.
func (r *Reconciler) moveOn(ctx context.Context, s *scope, problem string) error {
	made, err := r.choice(s).Elsewhere(ctx)
	if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
		return &progress.WaitingError{
			Reason: v1beta1.ReasonNodeNotReady, Message: fmt.Sprintf("%s; %s", problem, stalled.Message), After: retryNodes,
		}
	}
	if err != nil {
		return err
	}
	if err := r.pin(ctx, s, made); err != nil {
		return err
	}
	return r.observeNodes(ctx, s, s.revision.Plan.NodeNames)
}

// orOnNodes uses nodes that have joined since the plan, if machines would be bought and no provisioner is installed.
func (r *Reconciler) orOnNodes(ctx context.Context, s *scope, err error) error {
	_, isMissing := errors.AsType[*capacity.NotInstalledError](err)
	if !isMissing || s.spec.Resource.EffectiveNodeSource() == v1beta1.NodeSourceProvisioned {
		return err
	}
	s.nothingToBuyWith = true
	made, planErr := r.choice(s).Anywhere(ctx)
	if _, isStalled := errors.AsType[*progress.StalledError](planErr); isStalled {
		return err
	}
	if planErr != nil {
		return planErr
	}
	if err := r.pin(ctx, s, made); err != nil {
		return err
	}
	return r.ensureNodes(ctx, s)
}
