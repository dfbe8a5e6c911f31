// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ControllerName is the name of the controller in logs and metrics.
const ControllerName = "inferenceset"

// Index registers the index for a Reconciler.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &v1beta1.Workspace{}, ownerIndex, ownerOf); err != nil {
		return fmt.Errorf("indexing Workspaces by %s: %w", ownerIndex, err)
	}
	return nil
}

// SetupWithManager registers the Reconciler and its watches. The index must already exist. definitions are additional
// sources of requests.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, definitions []source.Source, options controller.Options) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		For(&v1beta1.InferenceSet{}).
		Owns(&v1beta1.Workspace{}, builder.WithPredicates(childChanged())).
		Owns(&corev1.Service{})
	for _, definition := range definitions {
		b = b.WatchesRawSource(definition)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the %s controller: %w", ControllerName, err)
	}
	return nil
}

// childChanged passes changes of a Workspace that affect its set, because a starting Workspace changes far more often.
func childChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1beta1.Workspace)
		after, okAfter := e.ObjectNew.(*v1beta1.Workspace)
		if !ok || !okAfter {
			return false
		}
		return before.Generation != after.Generation || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
			!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
			viewOf(before, before) != viewOf(after, after)
	}}
}
