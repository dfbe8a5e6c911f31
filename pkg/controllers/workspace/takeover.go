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

// ensureLeftAlone ends the pass while KAITO's objects for the Workspace must stay as they are. If the user has
// reverted an edit or the consent before our pods replace KAITO's, it releases the machines for that edit.
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

// ensureAdmitted checks that the API server would admit the pods of an edit, before machines are bought for them.
func (r *Reconciler) ensureAdmitted(ctx context.Context, s *scope.Scope) error {
	if !s.KAITO.IsReplaced() || len(s.Machines) > 0 || s.OpenAttempt() != nil {
		return nil
	}
	return r.rehearse(ctx, s, s.DesiredSets(), true) // the purchase checks the quotas
}

// rehearse checks that the API server would admit the sets and their pods in place of KAITO's.
func (r *Reconciler) rehearse(ctx context.Context, s *scope.Scope, desired []render.Object, hasRoom bool) error {
	rehearsal := foreign.Rehearsal{Replaced: s.KAITO.Set, HasRoom: hasRoom}
	for _, object := range desired {
		if set, isSet := object.(*appsv1.StatefulSet); isSet {
			rehearsal.Sets = append(rehearsal.Sets, set)
		}
	}
	return r.observer.Foreign.Rehearse(ctx, r.Client, rehearsal)
}

// ensureRoom checks both the quotas and the pods, right before KAITO's pods are deleted.
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

// ensureReplaced deletes KAITO's pods after an edit once our machines are usable, to make room for our pods. The
// Service keeps its address, and selects the pods of both.
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
	// The rehearsal takes seconds, and the user may have reverted the edit meanwhile. Nothing brings KAITO's pods
	// back.
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

// ensureNoLeftovers releases KAITO's machines once the pods that replace KAITO's pods answer, and then ends the
// takeover.
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

// runsOnKAITOs reports whether the plan or a pod uses a machine of KAITO's controller. Then these machines stay.
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
