// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/workload"
)

// offer is the nodes that are there for a Workspace, as one pass sees them.
type offer struct {
	nodes []corev1.Node
	uses  []existing.Use
	// open are the names of the nodes that may be used, if enough of them is free.
	open []string
}

// decide has the planner decide among the nodes that are there and what can be bought. Nodes that it chooses
// are promised to the Workspace before another one is planned.
func (r *Reconciler) decide(ctx context.Context, s *scope, request planner.Request) (planner.Plan, error) {
	if request.NodeSource == v1beta1.NodeSourceProvisioned {
		return r.Planner.Plan(request)
	}
	if s.nothingToBuyWith {
		request.NodeSource = v1beta1.NodeSourceExisting
	}
	if s.offer == nil {
		var err error
		if s.offer, err = r.lookAround(ctx, s); err != nil {
			return planner.Plan{}, err
		}
	}
	if len(s.offer.nodes) == 0 {
		return r.Planner.Plan(request)
	}
	accepted, err := r.accepted(ctx)
	if err != nil {
		return planner.Plan{}, err
	}
	var plan planner.Plan
	r.book.Plan(r.Clock.Now(), s.owner, accepted, func(promised []existing.Promise) existing.Promise {
		ask := askOfNodes(s, r.Uses)
		ask.Promised = promised
		if request.Nodes, err = existing.Candidates(s.offer.nodes, s.offer.uses, r.Catalog, ask); err == nil {
			plan, err = r.Planner.Plan(request)
		}
		if err != nil {
			return existing.Promise{}
		}
		return existing.PromiseOf(s.owner, &plan)
	})
	return plan, err
}

// askOfNodes is what the Workspace asks of nodes that are there. Without uses nobody can know what is free on them.
func askOfNodes(s *scope, uses Uses) existing.Ask {
	return existing.Ask{
		Unseen: uses == nil, Owner: s.owner, Selector: s.spec.Resource.LabelSelector, Preferred: s.spec.Resource.PreferredNodes,
		Pod: workload.Placement(s.spec), Left: s.left(),
	}
}

// lookAround reads the nodes that the Workspace may use, and what pods hold of them, from caches.
func (r *Reconciler) lookAround(ctx context.Context, s *scope) (*offer, error) {
	list := &corev1.NodeList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	out := &offer{}
	for i := range list.Items {
		if existing.Matches(&list.Items[i], s.spec.Resource.LabelSelector) {
			out.nodes = append(out.nodes, list.Items[i])
		}
	}
	candidates, err := existing.Candidates(out.nodes, nil, r.Catalog, askOfNodes(s, r.Uses))
	if err != nil {
		return nil, specInvalid(err.Error())
	}
	for i := range candidates {
		if candidates[i].Unusable == "" {
			out.open = append(out.open, candidates[i].Name)
		}
	}
	if len(out.open) == 0 {
		return out, nil
	}
	uses, isKnown := r.Uses.Of(out.open)
	if !isKnown {
		return nil, behindOn("pods of nodes")
	}
	out.uses = uses
	return out, nil
}

// accepted are the promises of the accepted plans of all Workspaces that run: those that their status names,
// and the newest, which the status may not name yet.
func (r *Reconciler) accepted(ctx context.Context) ([]existing.Promise, error) {
	workspaces := &v1beta1.WorkspaceList{}
	if err := r.Client.List(ctx, workspaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing workspaces: %w", err)
	}
	running := map[place]*v1beta1.Workspace{}
	for i := range workspaces.Items {
		if ws := &workspaces.Items[i]; !ws.Suspend && ws.DeletionTimestamp.IsZero() {
			running[place{ws.Namespace, ws.UID}] = ws
		}
	}
	revisions := &appsv1.ControllerRevisionList{}
	if err := r.Client.List(ctx, revisions, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing revisions: %w", err)
	}
	newest := map[place]int64{}
	for i := range revisions.Items {
		if owner, ok := controllerOf(&revisions.Items[i]); ok {
			newest[owner] = max(newest[owner], revisions.Items[i].Revision)
		}
	}
	var out []existing.Promise
	for i := range revisions.Items {
		object := &revisions.Items[i]
		owner, ok := controllerOf(object)
		if !ok || running[owner] == nil {
			continue
		}
		ws := running[owner]
		isNamed := ws.Status.Plan != nil && ws.Status.Plan.Revision == object.Name
		if promise, ok := promiseOf(object, ws); ok && (isNamed || object.Revision == newest[owner]) {
			out = append(out, promise)
		}
	}
	return out, nil
}

// place is a Workspace by namespace and UID. An owner reference reaches no other namespace: one that names the UID of
// another namespace's Workspace is forged.
type place struct {
	namespace string
	uid       types.UID
}

// controllerOf is the Workspace that controls a revision; false where nothing does.
func controllerOf(object *appsv1.ControllerRevision) (place, bool) {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return place{}, false
	}
	return place{object.Namespace, owner.UID}, true
}

// promiseOf is what a revision says that its Workspace was promised; false where that is nothing.
func promiseOf(object *appsv1.ControllerRevision, ws *v1beta1.Workspace) (existing.Promise, bool) {
	var out existing.Promise
	text := object.Annotations[v1beta1.AnnotationNodes]
	if text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return out, false
	}
	out.Owner = ownerOf(ws)
	return out, true
}

// promiseText is how a revision keeps what it promises; empty where that is nothing.
func promiseText(s *scope, plan *planner.Plan) (string, error) {
	if len(plan.NodeNames) == 0 {
		return "", nil
	}
	text, err := json.Marshal(existing.PromiseOf(s.owner, plan))
	if err != nil {
		return "", fmt.Errorf("encoding the nodes of the plan: %w", err)
	}
	return string(text), nil
}
