// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/foreign"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// ensureLeftAlone ends the pass of a Workspace whose objects of KAITO's controller stay as they are. If an edit, or the
// consent, was reverted before the pods were replaced, the machines of the edit are released.
func (r *Reconciler) ensureLeftAlone(ctx context.Context, s *scope.Scope) (err error) {
	s.KAITO, err = r.observer.Foreign.Look(ctx, seen(s))
	_, isStalled := errors.AsType[*progress.StalledError](err)
	isOver := progress.IsWaiting(err) && s.KAITO.IsFrozen() || isStalled && s.KAITO.IsKept()
	if isOver && s.StatefulSet == nil && s.Workers == nil {
		if failure := r.releaseMachines(ctx, s, "the machines were released because the edit was reverted"); failure != nil {
			return failure
		}
	}
	return err
}

func seen(s *scope.Scope) foreign.Seen {
	return foreign.Seen{Workspace: s.Workspace, Set: s.KAITO.Set, IsPlanned: len(s.Revisions.Objects) > 0, IsNew: s.IsNew}
}

// ensureAdmitted has the API server check the pods of an edit before machines are bought for them.
func (r *Reconciler) ensureAdmitted(ctx context.Context, s *scope.Scope) error {
	if !s.KAITO.IsReplaced() || len(s.Machines) > 0 || s.OpenAttempt() != nil {
		return nil
	}
	return r.rehearse(ctx, s, s.DesiredSets(), true) // the purchase looks at the quotas
}

// rehearse checks that the API server would admit the sets with their pods in place of KAITO's.
func (r *Reconciler) rehearse(ctx context.Context, s *scope.Scope, desired []render.Object, hasRoom bool) error {
	rehearsal := foreign.Rehearsal{Replaced: s.KAITO.Set, HasRoom: hasRoom}
	for _, object := range desired {
		if set, isSet := object.(*appsv1.StatefulSet); isSet {
			rehearsal.Sets = append(rehearsal.Sets, set)
		}
	}
	return r.observer.Foreign.Rehearse(ctx, r.Client, rehearsal)
}

// ensureRoom checks both the quotas and the pods, right before KAITO's go.
func (r *Reconciler) ensureRoom(ctx context.Context, s *scope.Scope) error {
	hasRoom, err := r.executor.Choice(s).CheckRoom(ctx, s.Running(), "KAITO's pods stay: ")
	if err != nil {
		return err
	}
	desired, err := r.workloads.pinned(s)
	if err != nil {
		return err
	}
	return r.rehearse(ctx, s, desired, hasRoom)
}

// ensureReplaced has the pods of KAITO's controller make room for ours after an edit, once the machines of ours are
// usable. The Service keeps its address, and selects both.
func (r *Reconciler) ensureReplaced(ctx context.Context, s *scope.Scope) error {
	if !s.KAITO.IsReplaced() {
		return nil
	}
	if open := s.OpenAttempt(); !s.IsOnNodes() && (open == nil || open.ReadyTime == nil) {
		return &progress.WaitingError{Message: "waiting for the machines; KAITO's pods serve meanwhile"}
	}
	if err := s.CheckVerified(); err != nil {
		return err
	}
	if err := r.ensureRoom(ctx, s); err != nil {
		return err
	}
	// The rehearsal takes seconds, and nothing brings KAITO's pods back: the edit may have been reverted meanwhile.
	if err := stale.Confirm(ctx, r.Live, s.Workspace); err != nil {
		return err
	}
	for _, desired := range r.workloads.network(s) {
		if err := r.observer.Foreign.Cede(ctx, r.Client, desired); err != nil {
			return err
		}
	}
	if err := r.observer.Foreign.DeleteSet(ctx, r.Client, s.KAITO.Set); err != nil {
		return err
	}
	return &progress.WaitingError{Message: "deleting KAITO's pods to make room for the new plan's pods", IsBrief: true}
}

// ensureNoLeftovers releases the machines of KAITO's controller once the pods that replace its own answer, and ends the
// takeover then.
func (r *Reconciler) ensureNoLeftovers(ctx context.Context, s *scope.Scope) error {
	if takeover.StateOf(s.Workspace) == takeover.Unadopted || s.KAITO.Set != nil || s.StatefulSet == nil || !s.IsCurrent() ||
		!diagnosis.Inference(s.Diagnosed()).Ready || runsOnKAITOs(s) {
		return nil
	}
	left, err := r.observer.Foreign.ReleaseMachines(ctx, s.Workspace)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		s.LookAgain(scope.RetryRelease)
		return nil
	}
	before := s.Workspace.DeepCopy()
	delete(s.Workspace.Annotations, v1beta1.AnnotationAdopted)
	status := s.Workspace.Status.DeepCopy()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.records.expectations.Write(s.Workspace, func() error { return r.Client.Patch(ctx, s.Workspace, patch) }); err != nil {
		return fmt.Errorf("ending the takeover: %w", err)
	}
	s.Workspace.Status = *status
	return nil
}

// runsOnKAITOs reports whether the plan, or a pod, uses a machine of KAITO's controller. Then the machines stay.
func runsOnKAITOs(s *scope.Scope) bool {
	names := slices.Clone(s.Running().Plan.NodeNames)
	for i := range s.Pods {
		names = append(names, s.Pods[i].Spec.NodeName)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		node := s.Node(name)
		return node != nil && takeover.IsNode(node, client.ObjectKeyFromObject(s.Workspace))
	})
}
