// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// revisionAnnotation on a pod remembers the template that it was made from.
const revisionAnnotation = "sim/generation"

// Workloads is a stand-in for the StatefulSet controller, the scheduler and the kubelets: the pods
// of a StatefulSet run as soon as a node carries the labels that they select.
type Workloads struct {
	client client.Client

	mu sync.Mutex
	// status that new pods get, by namespace/name of their StatefulSet; missing means ready.
	status map[types.NamespacedName]corev1.PodStatus
}

// SetupWorkloads registers the stand-in with a manager.
func SetupWorkloads(mgr manager.Manager) (*Workloads, error) {
	w := &Workloads{client: mgr.GetClient(), status: map[types.NamespacedName]corev1.PodStatus{}}
	skip := true
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		list := &appsv1.StatefulSetList{}
		if err := mgr.GetClient().List(ctx, list); err != nil {
			return nil
		}
		var requests []reconcile.Request
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return requests
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("sim-workloads").
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		For(&appsv1.StatefulSet{}).Owns(&corev1.Pod{}).Watches(&corev1.Node{}, all).Complete(w)
	return w, err
}

// Script sets the status of the pods of a StatefulSet, until Heal.
func (w *Workloads) Script(key types.NamespacedName, status corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status[key] = status
}

// Heal lets the pods of a StatefulSet become ready.
func (w *Workloads) Heal(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.status, key)
}

// Reconcile makes the pods of one StatefulSet and its status.
func (w *Workloads) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	set := &appsv1.StatefulSet{}
	err := w.client.Get(ctx, request.NamespacedName, set)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, w.collect(ctx, request.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	ready := int32(0)
	for ordinal := range *set.Spec.Replicas {
		running, err := w.pod(ctx, set, int(ordinal))
		if err != nil {
			return ctrl.Result{}, ignoreRaces(err)
		}
		if running {
			ready++
		}
	}
	if set.Status.ReadyReplicas == ready && set.Status.ObservedGeneration == set.Generation {
		return ctrl.Result{}, nil
	}
	set.Status.Replicas = *set.Spec.Replicas
	set.Status.ReadyReplicas = ready
	set.Status.ObservedGeneration = set.Generation
	return ctrl.Result{}, ignoreRaces(w.client.Status().Update(ctx, set))
}

// collect stands in for the garbage collector.
func (w *Workloads) collect(ctx context.Context, key types.NamespacedName) error {
	pods := &corev1.PodList{}
	if err := w.client.List(ctx, pods, client.InNamespace(key.Namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		if controller := metav1.GetControllerOf(&pods.Items[i]); controller != nil && controller.Name == key.Name {
			now := client.GracePeriodSeconds(0)
			if err := client.IgnoreNotFound(w.client.Delete(ctx, &pods.Items[i], now)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pod makes one pod if it is missing and says whether it is ready.
func (w *Workloads) pod(ctx context.Context, set *appsv1.StatefulSet, ordinal int) (bool, error) {
	key := types.NamespacedName{Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, ordinal)}
	pod := &corev1.Pod{}
	err := w.client.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		return false, w.client.Create(ctx, podOf(set, key))
	}
	if err != nil {
		return false, err
	}
	if pod.Annotations[revisionAnnotation] != fmt.Sprint(set.Generation) {
		return false, w.client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
	fits, err := w.fits(ctx, pod)
	if err != nil || !fits {
		return false, err
	}
	want := w.statusOf(client.ObjectKeyFromObject(set))
	if pod.Status.Phase != want.Phase || len(pod.Status.Conditions) != len(want.Conditions) ||
		len(pod.Status.InitContainerStatuses) != len(want.InitContainerStatuses) {
		pod.Status = want
		return false, w.client.Status().Update(ctx, pod)
	}
	return want.Phase == corev1.PodRunning && len(want.Conditions) > 0, nil
}

// fits says whether a node carries every label that the pod selects.
func (w *Workloads) fits(ctx context.Context, pod *corev1.Pod) (bool, error) {
	nodes := &corev1.NodeList{}
	if err := w.client.List(ctx, nodes, client.MatchingLabels(pod.Spec.NodeSelector)); err != nil {
		return false, err
	}
	for i := range nodes.Items {
		if len(nodes.Items[i].Status.Conditions) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (w *Workloads) statusOf(key types.NamespacedName) corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	if status, ok := w.status[key]; ok {
		return status
	}
	return corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
}

func podOf(set *appsv1.StatefulSet, key types.NamespacedName) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(),
		Spec:       *set.Spec.Template.Spec.DeepCopy(),
	}
	pod.Name, pod.Namespace = key.Name, key.Namespace
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[revisionAnnotation] = fmt.Sprint(set.Generation)
	pod.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet")),
	}
	return pod
}
