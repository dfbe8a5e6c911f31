// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
)

const (
	// schedulingGrace is how long the scheduler may reject a pod for its planned node: earlier pods may still be
	// leaving.
	schedulingGrace = 30 * time.Second
	// leftFor is how long plans avoid a node after the scheduler rejected a pod for it although its free resources
	// seemed to suffice. Otherwise pods would move back and forth.
	leftFor = 10 * time.Minute
	// retryNodes is the interval for checking whether pods have left room, because no watch reports that.
	retryNodes = time.Minute
)

// ensureNodes keeps the Workspace on the nodes of its plan, and plans again if one of them becomes unsuitable. It
// releases the machines of an earlier purchase once the model answers on the nodes.
func (e *Executor) ensureNodes(ctx context.Context, s *scope.Scope) error {
	switch isHeld := len(s.Machines.Standing()) > 0 || len(s.Attempts.Open()) > 0; {
	case isHeld && e.needsMachines(s):
		s.LookAgain(scope.RestartLimit)
	case isHeld:
		s.Attempts.Release("the machines were released: the plan uses existing nodes", s.Workspace.Generation, e.Clock.Now())
		if err := e.Effects.Persist(ctx, s); err != nil {
			return err
		}
		if err := e.Release(ctx, s); err != nil && !progress.IsWaiting(err) {
			return err
		}
	}
	if err := e.Observer.ObserveNodes(ctx, s, s.Revision.Plan.NodeNames); err != nil {
		return err
	}
	problem, left, err := e.nodeProblem(ctx, s)
	if err != nil || problem == "" {
		return err
	}
	s.LeftNodes = append(s.LeftNodes, left...)
	return e.moveOn(ctx, s, problem)
}

// needsMachines reports whether the pods still use the bought machines, or may have to return to them, because they do
// not answer on the nodes of the plan yet. Machines are not kept if no pod has answered on them, or if their model has
// stopped answering.
func (e *Executor) needsMachines(s *scope.Scope) bool {
	if !slices.ContainsFunc(s.Attempts.Open(), func(open *v1beta1.Attempt) bool { return open.AnsweredTime != nil }) {
		return false
	}
	now := e.Clock.Now()
	isReplaced := len(s.CurrentPods()) == 0 // the next pod has yet to be created
	isMoving := isReplaced && now.Before(movingSince(s, now).Add(acquire.MoveLimit))
	hasMoved := s.IsRunning(s.Revision) && s.IsCurrent() && s.HasReadyPod()
	return !hasMoved && (isMoving || s.HasReadyPod() || s.IsServing(now))
}

// movingSince returns since when the pods move to the nodes of the plan: since the model answered last, or since the plan
// was made if that is later. The plan may be an old one that the user has returned to.
func movingSince(s *scope.Scope, now time.Time) time.Time {
	var since time.Time
	if made := s.Revisions.Object(s.Revision.Name); made != nil {
		since = made.CreationTimestamp.Time
	}
	answers := meta.FindStatusCondition(s.Workspace.Status.Conditions, v1beta1.ConditionInferenceReady)
	switch {
	case answers == nil:
	case answers.Status == metav1.ConditionTrue: // the status does not have the end yet
		since = now
	case answers.LastTransitionTime.After(since):
		since = answers.LastTransitionTime.Time
	}
	return since
}

// nodeProblem explains why the nodes of the plan are unsuitable; empty if they are suitable. It also returns the nodes
// for which the scheduler rejected the pods.
func (e *Executor) nodeProblem(ctx context.Context, s *scope.Scope) (string, []render.LeftNode, error) {
	for _, name := range s.Revision.Plan.NodeNames {
		node := s.Node(name)
		if node == nil {
			isGone, err := e.Observer.IsGone(ctx, name)
			if err != nil || isGone {
				return fmt.Sprintf("node %s is gone", name), nil, err
			}
			s.LookAgain(acquire.CacheLag)
			continue
		}
		if problem := s.Unfit(node, e.Clock.Now(), e.Settings.NodeGrace); problem != "" {
			return problem, nil, nil
		}
	}
	problem, left := rejected(s, e.Clock.Now())
	return problem, left, nil
}

// rejected returns the scheduler's message if the scheduler puts a pod of the plan on none of the planned nodes. It
// also returns the planned nodes without a pod.
func rejected(s *scope.Scope, now time.Time) (string, []render.LeftNode) {
	isSeen := s.StatefulSet != nil && s.StatefulSet.Annotations[v1beta1.AnnotationRevision] == s.Revision.Name
	if !isSeen || !s.IsCurrent() {
		return "", nil
	}
	words, taken := "", []string{}
	for i := range s.Pods {
		pod := &s.Pods[i]
		taken = append(taken, pod.Spec.NodeName)
		scheduled := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		})
		if pod.Spec.NodeName != "" || scheduled < 0 || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		condition := pod.Status.Conditions[scheduled]
		if left := condition.LastTransitionTime.Add(schedulingGrace).Sub(now); left > 0 {
			s.LookAgain(left)
			continue
		}
		words = condition.Message
	}
	if words == "" {
		return "", nil
	}
	var left []render.LeftNode
	for _, name := range s.Revision.Plan.NodeNames {
		if !slices.Contains(taken, name) {
			reason := "the scheduler does not place the pod on it: " + words
			left = append(left, render.LeftNode{Name: name, Reason: reason, Until: acquire.Seconds(now.Add(leftFor))})
		}
	}
	if len(left) == 0 { // old pods still hold the planned nodes, and make room once they are gone
		return "", nil
	}
	return "the scheduler does not place the pod on the planned node: " + words, left
}

// moveOn makes and pins a plan without the unsuitable nodes. If there is no such plan, the old plan stays until
// something changes.
func (e *Executor) moveOn(ctx context.Context, s *scope.Scope, problem string) error {
	made, err := e.Choice(s).Elsewhere(ctx)
	if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
		return &progress.WaitingError{
			Reason: v1beta1.ReasonNodeNotReady, Message: fmt.Sprintf("%s; %s", problem, stalled.Message), After: retryNodes,
		}
	}
	if err != nil {
		return err
	}
	if err := e.Effects.Pin(ctx, s, made); err != nil {
		return err
	}
	return e.Observer.ObserveNodes(ctx, s, s.Revision.Plan.NodeNames)
}

// orOnNodes plans for nodes that have joined meanwhile, if machines are needed but no provisioner is installed.
func (e *Executor) orOnNodes(ctx context.Context, s *scope.Scope, err error) error {
	_, isMissing := errors.AsType[*capacity.NotInstalledError](err)
	if !isMissing || s.Spec.Resource.EffectiveNodeSource() == v1beta1.NodeSourceProvisioned {
		return err
	}
	s.CannotBuy = true
	made, planErr := e.Choice(s).Anywhere(ctx)
	if _, isStalled := errors.AsType[*progress.StalledError](planErr); isStalled {
		return err
	}
	if planErr != nil {
		return planErr
	}
	if err := e.Effects.Pin(ctx, s, made); err != nil {
		return err
	}
	return e.ensureNodes(ctx, s)
}
