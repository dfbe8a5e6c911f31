// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ensureFinalizer keeps the Workspace until its machines are gone. It comes before anything is
// bought.
func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) error {
	return r.patchFinalizers(ctx, s, controllerutil.AddFinalizer)
}

// ensureReleased lets the machines go, and then the Workspace. It has to see that nothing is left
// before the finalizer goes.
func (r *Reconciler) ensureReleased(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.ws, v1beta1.Finalizer) {
		s.finalized = true
		return nil
	}
	if err := r.deleteStatefulSet(ctx, s); err != nil {
		return err
	}
	left, err := r.Provisioner.Release(ctx, s.owner)
	if err != nil {
		return err
	}
	if left > 0 {
		return &waitingError{message: fmt.Sprintf("waiting for %d machine(s) to be gone", left)}
	}
	if err := r.patchFinalizers(ctx, s, controllerutil.RemoveFinalizer); err != nil {
		return client.IgnoreNotFound(err)
	}
	s.finalized = true
	return nil
}

// ensureSuspended lets the machines go and keeps the Workspace, its plan and its Service.
func (r *Reconciler) ensureSuspended(ctx context.Context, s *scope) error {
	if err := r.deleteStatefulSet(ctx, s); err != nil {
		return err
	}
	last := s.lastAttempt()
	if len(s.machines) == 0 && (last == nil || last.Reason != "") {
		return nil // nothing is held, and the status says so
	}
	left, err := r.Provisioner.Release(ctx, s.owner)
	if err != nil {
		return err
	}
	s.released = left == 0
	return nil
}

func (r *Reconciler) deleteStatefulSet(ctx context.Context, s *scope) error {
	if s.statefulSet == nil || !s.statefulSet.DeletionTimestamp.IsZero() {
		return nil
	}
	err := r.Client.Delete(ctx, s.statefulSet, client.Preconditions{UID: &s.statefulSet.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting StatefulSet: %w", err)
	}
	return nil
}

func (r *Reconciler) patchFinalizers(
	ctx context.Context, s *scope, change func(client.Object, string) bool,
) error {
	before := s.ws.DeepCopy()
	if !change(s.ws, v1beta1.Finalizer) {
		return nil
	}
	// The list is replaced as a whole, so it must be the list that we read.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	status := s.ws.Status.DeepCopy()
	if err := r.Client.Patch(ctx, s.ws, patch); err != nil {
		return fmt.Errorf("patching finalizers: %w", err)
	}
	s.ws.Status = *status
	return nil
}
