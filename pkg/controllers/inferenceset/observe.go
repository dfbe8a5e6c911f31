// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ownerIndex indexes Workspaces by the UID of their set.
const ownerIndex = "metadata.controller"

// ownerOf returns the UID of a Workspace's set.
func ownerOf(object client.Object) []string {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != v1beta1.InferenceSetKind {
		return nil
	}
	return []string{string(owner.UID)}
}

// cached returns the Workspaces of a set from the cache. Only Workspaces with the set as their controller count; its
// label is not enough.
func (r *Reconciler) cached(ctx context.Context, set *v1beta1.InferenceSet) ([]*v1beta1.Workspace, error) {
	list := &v1beta1.WorkspaceList{}
	err := r.Client.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingFields{ownerIndex: string(set.UID)})
	if err != nil {
		return nil, fmt.Errorf("listing the workspaces of inferenceset %s/%s: %w", set.Namespace, set.Name, err)
	}
	return owned(set, list), nil
}

// live reads a set and its Workspaces from the API server; nil if the set is gone. The list finds only Workspaces with
// the set's label, so live reads the cached Workspaces without it one by one.
func (r *Reconciler) live(
	ctx context.Context, set *v1beta1.InferenceSet, cached []*v1beta1.Workspace,
) (*v1beta1.InferenceSet, []*v1beta1.Workspace, error) {
	found := &v1beta1.InferenceSet{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(set), found); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	if found.UID != set.UID {
		return nil, nil, nil // the new set of this name has its own events
	}
	list := &v1beta1.WorkspaceList{}
	err := r.Live.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabels{v1beta1.LabelInferenceSet: set.Name})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the workspaces of inferenceset %s/%s: %w", set.Namespace, set.Name, err)
	}
	for _, ws := range cached {
		if ws.Labels[v1beta1.LabelInferenceSet] == set.Name {
			continue
		}
		unlabelled := &v1beta1.Workspace{}
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(ws), unlabelled)
		if client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("reading workspace %s/%s: %w", ws.Namespace, ws.Name, err)
		}
		if err == nil && find(owned(set, list), ws.Name) == nil {
			list.Items = append(list.Items, *unlabelled)
		}
	}
	return found, owned(set, list), nil
}

// owned returns the Workspaces with the set as their controller, oldest first.
func owned(set *v1beta1.InferenceSet, list *v1beta1.WorkspaceList) []*v1beta1.Workspace {
	var out []*v1beta1.Workspace
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], set) {
			out = append(out, &list.Items[i])
		}
	}
	slices.SortFunc(out, func(a, b *v1beta1.Workspace) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func find(children []*v1beta1.Workspace, name string) *v1beta1.Workspace {
	i := slices.IndexFunc(children, func(ws *v1beta1.Workspace) bool { return ws.Name == name })
	if i < 0 {
		return nil
	}
	return children[i]
}
