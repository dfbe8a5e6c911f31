// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// observeNamespace reads the labels and annotations of the Workspace's namespace from the cache.
func (r *Reconciler) observeNamespace(ctx context.Context, s *scope) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := client.IgnoreNotFound(r.Client.Get(ctx, client.ObjectKey{Name: s.ws.Namespace}, object)); err != nil {
		return fmt.Errorf("reading namespace %s: %w", s.ws.Namespace, err)
	}
	s.namespace = object.ObjectMeta
	return nil
}

// namespaceChanged passes changes of what decides about a namespace's Workspaces. A namespace that is shown for the first
// time counts, too: a pass may have read it before its rules changed.
func namespaceChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e ctrlevent.CreateEvent) bool {
			return len(e.Object.GetLabels())+len(e.Object.GetAnnotations()) > 0
		},
		DeleteFunc: func(ctrlevent.DeleteEvent) bool { return false },
		UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
		},
	}
}

// byNamespace finds the Workspaces of a namespace.
func (r *Reconciler) byNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	list := &v1beta1.WorkspaceList{}
	if err := r.Client.List(ctx, list, client.InNamespace(object.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing the workspaces of a namespace failed", "namespace", object.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, requestFor(list.Items[i].Namespace, list.Items[i].Name)...)
	}
	return requests
}
