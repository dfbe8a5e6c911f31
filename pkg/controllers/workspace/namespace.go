// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
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

// ceilings are those for a Workspace: its namespace may have one of its own. The error is a
// *stalledError where that cannot be read: it must not pass for none.
func (r *Reconciler) ceilings(s *scope) (ledger.Ceilings, error) {
	out := r.Ledger.Ceilings()
	text, isSet := s.namespace.Annotations[v1beta1.AnnotationSpendingCeiling]
	if !isSet {
		return out, nil
	}
	price, err := strconv.ParseFloat(text, 64)
	if err != nil || price <= 0 || math.IsInf(price, 0) || !regexp.MustCompile(`^\d+(\.\d+)?$`).MatchString(text) {
		const most = 64
		return out, &progress.StalledError{
			Reason: v1beta1.ReasonSpendingCeilingInvalid,
			Message: fmt.Sprintf("nothing is bought: namespace %s has the annotation %s with the value %q, which is not a price: "+
				"have the administrator set a number above 0 in USD per hour, such as 50, or remove the annotation",
				s.ws.Namespace, v1beta1.AnnotationSpendingCeiling, request.Shorten(text, most)),
		}
	}
	out.Namespace, out.IsNamespaceOwn = price, true
	return out, nil
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
