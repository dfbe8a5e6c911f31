// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Endpoints is a stand-in for the controller of EndpointSlices.
type Endpoints struct {
	client client.Client

	mu sync.Mutex
	// stopped are the namespaces without such a controller.
	stopped map[string]bool
}

// SetupEndpoints registers the stand-in with a manager.
func SetupEndpoints(mgr manager.Manager) (*Endpoints, error) {
	e := &Endpoints{client: mgr.GetClient(), stopped: map[string]bool{}}
	skip := true
	err := ctrl.NewControllerManagedBy(mgr).Named("sim-endpoints").
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		For(&corev1.Service{}).Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(e.servicesBeside)).Complete(e)
	return e, err
}

// Stop leaves the Services of a namespace as they are, until Start: the controller manager does not run.
func (e *Endpoints) Stop(namespace string) { e.set(namespace, true) }

// Start ends Stop.
func (e *Endpoints) Start(namespace string) { e.set(namespace, false) }

func (e *Endpoints) set(namespace string, isStopped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped[namespace] = isStopped
}

// servicesBeside returns the Services in the namespace of an object.
func (e *Endpoints) servicesBeside(ctx context.Context, object client.Object) []reconcile.Request {
	services := &corev1.ServiceList{}
	if err := e.client.List(ctx, services, client.InNamespace(object.GetNamespace())); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range services.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&services.Items[i])})
	}
	return out
}

// Reconcile writes the slice of one Service.
func (e *Endpoints) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	e.mu.Lock()
	isStopped := e.stopped[request.Namespace]
	e.mu.Unlock()
	if isStopped {
		return ctrl.Result{RequeueAfter: schedulerDelay}, nil
	}
	service := &corev1.Service{}
	err := e.client.Get(ctx, request.NamespacedName, service)
	if err != nil || len(service.Spec.Selector) == 0 {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	pods := &corev1.PodList{}
	err = e.client.List(ctx, pods, client.InNamespace(request.Namespace), client.MatchingLabels(service.Spec.Selector))
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("simulated endpoints: %w", err)
	}
	return againAfterRace(e.write(ctx, sliceOf(service, pods.Items)))
}

// write stores a slice unless it is stored already.
func (e *Endpoints) write(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	known := &discoveryv1.EndpointSlice{}
	err := e.client.Get(ctx, client.ObjectKeyFromObject(slice), known)
	switch {
	case apierrors.IsNotFound(err):
		if err = e.client.Create(ctx, slice); apierrors.IsAlreadyExists(err) {
			return apierrors.NewConflict(discoveryv1.Resource("endpointslices"), slice.Name, err)
		}
		return err
	case err != nil:
		return err
	}
	isSame := equality.Semantic.DeepEqual(known.OwnerReferences, slice.OwnerReferences) &&
		equality.Semantic.DeepEqual(known.Labels, slice.Labels) && equality.Semantic.DeepEqual(known.Endpoints, slice.Endpoints)
	if isSame {
		return nil
	}
	slice.ResourceVersion = known.ResourceVersion
	return e.client.Update(ctx, slice)
}

// sliceOf is the slice of a Service with these pods. It has the labels of the Service.
func sliceOf(service *corev1.Service, pods []corev1.Pod) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name + "-sim", Labels: maps.Clone(service.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[discoveryv1.LabelServiceName] = service.Name
	for i := range pods {
		pod := &pods[i]
		isServed := isReady(pod) && pod.DeletionTimestamp.IsZero()
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &isServed},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		})
	}
	slices.SortFunc(out.Endpoints, func(a, b discoveryv1.Endpoint) int {
		return cmp.Compare(a.TargetRef.Name, b.TargetRef.Name)
	})
	return out
}
