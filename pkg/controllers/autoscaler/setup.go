// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ControllerName is the name of the controller in logs and metrics.
const ControllerName = "autoscaler"

// mostSets bounds the sets in a look at the same time. Silent engines of some sets must not delay the other sets.
const mostSets = 16

// SetupWithManager registers the Reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, options controller.Options) error {
	options.MaxConcurrentReconciles = mostSets
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		For(&v1beta1.InferenceSet{}, builder.WithPredicates(setChanged())).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(targets), builder.WithPredicates(retargeted()))
	if r.HasKEDA {
		b = b.Watches(ScaledObject(), handler.EnqueueRequestsFromMapFunc(targets), builder.WithPredicates(retargeted()))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the %s controller: %w", ControllerName, err)
	}
	return nil
}

// setChanged passes changes of a set that may affect its number of replicas, but not changes of its status.
func setChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
			!equality.Semantic.DeepEqual(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	}}
}

// retargeted passes an update of another autoscaler only if its target has changed: its status changes all the time.
func retargeted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return targetOf(e.ObjectOld) != targetOf(e.ObjectNew) }}
}

// targets returns a request for the set that another autoscaler targets.
func targets(_ context.Context, object client.Object) []reconcile.Request {
	name := targetOf(object)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}
