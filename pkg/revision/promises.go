// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Promises returns the existing nodes in the accepted plans of running Workspaces. Both the revision in a status and
// the newest revision count, because the status may lag.
func (s *Store) Promises(ctx context.Context) ([]existing.Promise, error) {
	workspaces := &v1beta1.WorkspaceList{}
	if err := s.client.List(ctx, workspaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing workspaces: %w", err)
	}
	running := map[owner]*v1beta1.Workspace{}
	for i := range workspaces.Items {
		if ws := &workspaces.Items[i]; !ws.Suspend && ws.DeletionTimestamp.IsZero() {
			running[owner{ws.Namespace, ws.UID}] = ws
		}
	}
	revisions := &appsv1.ControllerRevisionList{}
	if err := s.client.List(ctx, revisions, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing revisions: %w", err)
	}
	newest := map[owner]int64{}
	for i := range revisions.Items {
		if by, ok := controllerOf(&revisions.Items[i]); ok {
			newest[by] = max(newest[by], revisions.Items[i].Revision)
		}
	}
	var out []existing.Promise
	for i := range revisions.Items {
		object := &revisions.Items[i]
		by, ok := controllerOf(object)
		if !ok || running[by] == nil {
			continue
		}
		ws := running[by]
		isNamed := ws.Status.Plan != nil && ws.Status.Plan.Revision == object.Name
		if promise, ok := promiseOf(object, ws); ok && (isNamed || object.Revision == newest[by]) {
			out = append(out, promise)
		}
	}
	return out, nil
}

// owner identifies a Workspace by namespace and UID. An owner reference is valid only in its own namespace: a reference
// to the UID of a Workspace in another namespace is forged.
type owner struct {
	namespace string
	uid       types.UID
}

// controllerOf returns the Workspace that controls a revision; false if there is none.
func controllerOf(object *appsv1.ControllerRevision) (owner, bool) {
	controller := metav1.GetControllerOf(object)
	if controller == nil {
		return owner{}, false
	}
	return owner{object.Namespace, controller.UID}, true
}

// promiseOf returns the promise of a revision; false if it has none.
func promiseOf(object *appsv1.ControllerRevision, ws *v1beta1.Workspace) (existing.Promise, bool) {
	var out existing.Promise
	text := object.Annotations[v1beta1.AnnotationNodes]
	if text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return out, false
	}
	out.Owner = ownerOf(ws)
	return out, true
}

// promiseText encodes the promise of a plan; empty if it uses no existing nodes.
func promiseText(ws *v1beta1.Workspace, plan *planner.Plan) (string, error) {
	if len(plan.NodeNames) == 0 {
		return "", nil
	}
	text, err := json.Marshal(existing.PromiseOf(ownerOf(ws), plan))
	if err != nil {
		return "", fmt.Errorf("encoding the nodes of the plan: %w", err)
	}
	return string(text), nil
}

func ownerOf(ws *v1beta1.Workspace) capacity.Owner {
	return capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID}
}
