// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"context"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/pruned"
	"github.com/modelberth/modelberth/pkg/crd"
)

// holdsPruned leaves a set and its Workspaces as they are while the API server prunes fields of either. Otherwise a
// template without its limits would reach every replica, and each write of a Workspace would lose its suspension and
// its attempts. Deletions continue.
func (r *Reconciler) holdsPruned(ctx context.Context, set *v1beta1.InferenceSet) (bool, error) {
	if !set.DeletionTimestamp.IsZero() {
		return false, nil
	}
	message := pruned.Check(r.Schema, crd.Names()...)
	if message == "" {
		return false, nil
	}
	if r.reports.Publish(r.Events, set, v1beta1.InferenceSetFinalizer, message) {
		return true, nil
	}
	return true, r.report(ctx, newPass(set), &waitError{problem: problem{v1beta1.ReasonAPIPruned, message}})
}
