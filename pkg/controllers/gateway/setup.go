// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ControllerName is the name of the controller in logs and metrics.
const ControllerName = "gateway"

// AddToScheme registers the kinds of gateways.
func AddToScheme(scheme *runtime.Scheme) error {
	if err := inferencev1.Install(scheme); err != nil {
		return err
	}
	return gatewayv1.Install(scheme)
}

// Kinds returns the kinds that a cluster must serve for this controller.
func Kinds(withRoutes bool) []schema.GroupVersionKind {
	out := []schema.GroupVersionKind{inferencev1.SchemeGroupVersion.WithKind("InferencePool")}
	if withRoutes {
		out = append(out, gatewayv1.SchemeGroupVersion.WithKind("HTTPRoute"))
	}
	return out
}

// Objects returns an empty object of each of these kinds.
func Objects(withRoutes bool) []client.Object {
	out := []client.Object{&inferencev1.InferencePool{}}
	if withRoutes {
		out = append(out, &gatewayv1.HTTPRoute{})
	}
	return out
}

// SetupWithManager registers the Reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, options controller.Options) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		For(&v1beta1.InferenceSet{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&v1beta1.Workspace{}, builder.WithPredicates(namesChanged())).
		Owns(&corev1.Service{}, builder.WithPredicates(isPicker())).
		Owns(&discoveryv1.EndpointSlice{}).
		Owns(&inferencev1.InferencePool{}).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(r.ofRouters()))
	if r.Gateway.Name != "" {
		b = b.Owns(&gatewayv1.HTTPRoute{})
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the %s controller: %w", ControllerName, err)
	}
	return nil
}

// namesChanged passes changes of a Workspace that change the names of its models.
func namesChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1beta1.Workspace)
		after, okAfter := e.ObjectNew.(*v1beta1.Workspace)
		return ok && okAfter && (before.Generation != after.Generation || !slices.Equal(modelsOf(before), modelsOf(after)))
	}}
}

func modelsOf(ws *v1beta1.Workspace) []string {
	if ws.Status.Endpoint == nil {
		return nil
	}
	return ws.Status.Endpoint.Models
}

// isPicker passes the Services of endpoint pickers.
func isPicker() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[LabelEndpointPicker] != "" })
}

// ofRouters passes the EndpointSlices of the routers.
func (r *Reconciler) ofRouters() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.Routers.Namespace && o.GetLabels()[discoveryv1.LabelServiceName] == r.Routers.Name
	})
}

// all returns all sets: each has a copy of the routers' addresses.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	sets := &v1beta1.InferenceSetList{}
	if err := r.Client.List(ctx, sets); err != nil {
		return nil // the cache has stopped
	}
	out := make([]reconcile.Request, 0, len(sets.Items))
	for i := range sets.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
	}
	return out
}
