// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/pruned"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/crd"
	"github.com/modelberth/modelberth/pkg/progress"
)

// holdsPruned leaves a Workspace as it is while the API server prunes its fields. Without these fields, a
// suspended Workspace seems to run, and a Workspace with limits seems to have none. So the controller buys,
// releases and renders nothing. Deletions continue.
func (r *Reconciler) holdsPruned(ctx context.Context, ws *v1beta1.Workspace) (bool, error) {
	if !ws.DeletionTimestamp.IsZero() {
		return false, nil
	}
	message := pruned.Check(r.Schema, crd.Workspaces)
	if message == "" {
		return false, nil
	}
	if r.reports.Publish(r.Events, ws, v1beta1.Finalizer, message) {
		return true, nil
	}
	stall := &progress.StalledError{Reason: v1beta1.ReasonAPIPruned, Message: message}
	kept, events := status.Kept(&ws.Status, ws.Generation, stall, metav1.NewTime(r.Clock.Now()))
	if equality.Semantic.DeepEqual(ws.Status, kept) {
		return true, nil
	}
	former := ws.DeepCopy()
	ws.Status = kept
	if err := r.records.patchStatus(ctx, former, ws); err != nil {
		return true, fmt.Errorf("patching status of workspace %s/%s: %w", ws.Namespace, ws.Name, err)
	}
	emit(r.Events, ws, events)
	return true, nil
}
