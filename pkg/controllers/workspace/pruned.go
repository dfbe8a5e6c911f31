// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Schema returns the fields of Workspaces that the API server prunes.
type Schema interface {
	Missing(ctx context.Context) ([]string, error)
}

// reported are the Workspaces with an event about pruned fields.
type reported struct {
	mu   sync.Mutex
	uids map[types.UID]struct{}
}

func (r *reported) isFirst(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, isKnown := r.uids[uid]; isKnown {
		return false
	}
	if r.uids == nil {
		r.uids = map[types.UID]struct{}{}
	}
	r.uids[uid] = struct{}{}
	return true
}

// holdPruned keeps a Workspace as it is while the API server prunes its fields: a suspended one looks as if it ran, and
// one with limits as if it had none. Nothing is bought, released or rendered.
//
// What is pruned is still stored, until somebody writes the object (docs/adr/0011-pruned-workspaces.md). So only a
// Workspace that this controller has never handled gets a condition; about others there is an event.
func (r *Reconciler) holdPruned(ctx context.Context, ws *v1beta1.Workspace, missing []string) error {
	stall := &progress.StalledError{Reason: v1beta1.ReasonAPIPruned, Message: fmt.Sprintf(
		"the CustomResourceDefinition workspaces.kaito.sh lacks %s: another tool replaced it, for example an add-on manager with KAITO's. "+
			"Until it is restored, nothing is bought or changed, and running models continue. Have an administrator stop that tool and run "+
			"helm upgrade --take-ownership with this chart", strings.Join(missing, ", "))}
	if slices.Contains(ws.Finalizers, v1beta1.Finalizer) {
		if r.reported.isFirst(ws.UID) {
			r.Events.Event(ws, corev1.EventTypeWarning, stall.Reason, stall.Message)
		}
		return nil
	}
	kept, events := status.Kept(&ws.Status, ws.Generation, stall, metav1.NewTime(r.Clock.Now()))
	if equality.Semantic.DeepEqual(ws.Status, kept) {
		return nil
	}
	former := ws.DeepCopy()
	ws.Status = kept
	if err := r.records.patchStatus(ctx, former, ws); err != nil {
		return fmt.Errorf("patching status of workspace %s/%s: %w", ws.Namespace, ws.Name, err)
	}
	emit(r.Events, ws, events)
	return nil
}

// missingFields returns the pruned fields.
func missingFields(ctx context.Context, schema Schema) ([]string, error) {
	if schema == nil {
		return nil, nil
	}
	return schema.Missing(ctx)
}
