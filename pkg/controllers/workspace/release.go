// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

// ensureFinalizer keeps the Workspace until its machines are gone. It adds the finalizer before any purchase.
func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope.Scope) error {
	before := s.Workspace.ResourceVersion
	err := r.patchFinalizers(ctx, s, controllerutil.AddFinalizer)
	s.IsNew = err == nil && s.Workspace.ResourceVersion != before
	return err
}

// ensureReleased releases the machines, and then the Workspace. The finalizer stays until no machine is left.
func (r *Reconciler) ensureReleased(ctx context.Context, s *scope.Scope) error {
	if !controllerutil.ContainsFinalizer(s.Workspace, v1beta1.Finalizer) {
		s.IsFinalized = true
		return nil
	}
	if err := deleteSets(ctx, r.Client, s.Sets()); err != nil {
		return err
	}
	left, err := r.Provisioner.Release(ctx, s.Owner)
	if err != nil {
		return err
	}
	kaito, err := r.observer.Foreign.Release(ctx, seen(s))
	if err != nil {
		return err
	}
	if left = append(left, kaito...); len(left) > 0 {
		return s.WaitForRelease(left)
	}
	err = client.IgnoreNotFound(r.patchFinalizers(ctx, s, controllerutil.RemoveFinalizer))
	s.IsFinalized = err == nil
	return err
}

// ensureSuspended releases the machines, but keeps the Workspace, its plan and its Service.
func (r *Reconciler) ensureSuspended(ctx context.Context, s *scope.Scope) error {
	if len(s.Sets()) > 0 { // the Workspace may have been resumed since
		if err := r.records.Confirm(ctx, s); err != nil {
			return err
		}
	}
	if err := deleteSets(ctx, r.Client, s.Sets()); err != nil {
		return err
	}
	return r.releaseMachines(ctx, s, "the machines were released because the Workspace is suspended")
}

// releaseMachines releases all machines, but keeps the Workspace.
func (r *Reconciler) releaseMachines(ctx context.Context, s *scope.Scope, why string) error {
	if len(s.Machines) == 0 && len(s.Attempts.Open()) == 0 {
		return nil // there are no machines, and the status says so
	}
	s.Attempts.Release(why, s.Workspace.Generation, r.Clock.Now())
	if err := r.records.Persist(ctx, s); err != nil {
		return err
	}
	if err := r.records.Confirm(ctx, s); err != nil {
		return err
	}
	_, err := r.Provisioner.Release(ctx, s.Owner)
	return err
}

// releaseOrphans releases the machines of earlier Workspaces of that name. A Workspace counts as gone only after
// a live read.
func (r *Reconciler) releaseOrphans(ctx context.Context, key types.NamespacedName, known types.UID) error {
	owners, err := r.Provisioner.Owners(ctx, key.Namespace, key.Name)
	orphans := slices.DeleteFunc(owners, func(owner capacity.Owner) bool { return owner.UID == known })
	if err != nil || len(orphans) == 0 {
		return err
	}
	ws := &v1beta1.Workspace{}
	if err := client.IgnoreNotFound(r.Live.Get(ctx, key, ws)); err != nil {
		return fmt.Errorf("reading workspace %s: %w", key, err)
	}
	for _, orphan := range orphans {
		if orphan.UID == ws.UID {
			continue
		}
		log.FromContext(ctx).Info("releasing machines of a workspace that is gone", "uid", orphan.UID)
		if _, err := r.Provisioner.Release(ctx, orphan); err != nil {
			return err
		}
	}
	return nil
}

// ensureNoOrphans releases the machines of an earlier Workspace of the same name.
func (r *Reconciler) ensureNoOrphans(ctx context.Context, s *scope.Scope) error {
	return r.releaseOrphans(ctx, client.ObjectKeyFromObject(s.Workspace), s.Workspace.UID)
}

func (r *Reconciler) patchFinalizers(
	ctx context.Context, s *scope.Scope, change func(client.Object, string) bool,
) error {
	before := s.Workspace.DeepCopy()
	if !change(s.Workspace, v1beta1.Finalizer) {
		return nil
	}
	// The patch replaces the whole list, so it must start from the list that was read.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	status := s.Workspace.Status.DeepCopy()
	if err := r.records.expectations.Write(s.Workspace, func() error { return r.Client.Patch(ctx, s.Workspace, patch) }); err != nil {
		return fmt.Errorf("patching finalizers: %w", err)
	}
	s.Workspace.Status = *status
	return nil
}
