// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Workloads is a stand-in for the StatefulSet controller, the scheduler and the kubelets: the pods of a StatefulSet
// run as soon as a node carries their selected labels.
type Workloads struct {
	client client.Client
	live   client.Reader

	mu sync.Mutex
	// scripts by namespace/name of the StatefulSet; without one pods become ready.
	scripts map[types.NamespacedName]script
	// held are the StatefulSets with an observed update that has not started.
	held map[types.NamespacedName]bool
}

// script is the status of all pods except the pods of the revision spared.
type script struct {
	status corev1.PodStatus
	spared string
}

// SetupWorkloads registers the stand-in with a manager.
func SetupWorkloads(mgr manager.Manager) (*Workloads, error) {
	w := &Workloads{client: mgr.GetClient(), live: mgr.GetAPIReader(), scripts: map[types.NamespacedName]script{}, held: map[types.NamespacedName]bool{}}
	skip := true
	all := forAll(mgr, func() client.ObjectList { return &appsv1.StatefulSetList{} })
	err := ctrl.NewControllerManagedBy(mgr).Named("sim-workloads").
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		For(&appsv1.StatefulSet{}).Owns(&corev1.Pod{}).Watches(&corev1.Node{}, all).Complete(w)
	return w, err
}

// forAll requests another look at all objects of a kind after any change.
func forAll(mgr manager.Manager, newList func() client.ObjectList) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		list := newList()
		if err := mgr.GetClient().List(ctx, list); err != nil {
			return nil
		}
		objects, err := objectsOf(list)
		if err != nil {
			return nil
		}
		requests := make([]reconcile.Request, len(objects))
		for i, object := range objects {
			requests[i] = reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
		}
		return requests
	})
}

// Script sets the status of the pods of a StatefulSet, until Heal.
func (w *Workloads) Script(key types.NamespacedName, status corev1.PodStatus) {
	w.ScriptUpdate(key, "", status)
}

// ScriptUpdate sets the status of the pods of a StatefulSet until Heal, except for pods of its current revision.
func (w *Workloads) ScriptUpdate(key types.NamespacedName, current string, status corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scripts[key] = script{status: status, spared: current}
}

// Hold lets an update of a StatefulSet show in its status without replacing any pod, until Continue: a moment of
// every update.
func (w *Workloads) Hold(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[key] = true
}

// Continue ends Hold.
func (w *Workloads) Continue(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, key)
}

// Heal lets the pods of a StatefulSet become ready.
func (w *Workloads) Heal(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.scripts, key)
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
	update := revisionOf(set)
	var ready, updated int32
	waits := false
	for ordinal := range *set.Spec.Replicas {
		pod, err := w.pod(ctx, set, update, firstOrdinal(set)+int(ordinal))
		if err != nil {
			return againAfterRace(err)
		}
		if isReady(pod) {
			ready++
		}
		waits = waits || isPlaced(pod) && !isReady(pod)
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == update {
			updated++
		}
	}
	status := set.Status.DeepCopy()
	status.ObservedGeneration = set.Generation
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas = *set.Spec.Replicas, ready, ready
	status.UpdatedReplicas, status.UpdateRevision = updated, update
	// The update has ended once every pod is of its revision and ready.
	if status.CurrentRevision == "" || (updated == status.Replicas && ready == status.Replicas) {
		status.CurrentRevision = update
	}
	status.CurrentReplicas = status.Replicas - updated
	if status.CurrentRevision == update {
		status.CurrentReplicas = updated
	}
	if equality.Semantic.DeepEqual(*status, set.Status) {
		if waits {
			return ctrl.Result{RequeueAfter: schedulerDelay}, nil
		}
		return ctrl.Result{}, nil
	}
	set.Status = *status
	return againAfterRace(w.client.Status().Update(ctx, set))
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

// pod brings one pod a stage further and returns it as it is.
func (w *Workloads) pod(ctx context.Context, set *appsv1.StatefulSet, update string, ordinal int) (*corev1.Pod, error) {
	key := types.NamespacedName{Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, ordinal)}
	pod := &corev1.Pod{}
	err := w.client.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		pod = podOf(set, update, key)
		return pod, w.client.Create(ctx, pod)
	}
	if err != nil {
		return pod, err
	}
	if !pod.DeletionTimestamp.IsZero() && pod.Spec.NodeName == "" {
		// As the collector of pods: the API server deletes in two steps, and a request may be cut off in between.
		return &corev1.Pod{}, client.IgnoreNotFound(w.client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	}
	revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	hold, want := w.wanted(client.ObjectKeyFromObject(set), revision)
	if revision != update && !hold && set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
		return pod, w.replace(ctx, pod)
	}
	fit := w.fits
	if isPlaced(pod) {
		fit = w.schedule
	}
	fits, err := fit(ctx, pod)
	if err != nil || !fits {
		return pod, err
	}
	if pod.Status.Phase != want.Phase || len(pod.Status.Conditions) != len(want.Conditions) ||
		len(pod.Status.InitContainerStatuses) != len(want.InitContainerStatuses) {
		pod.Status = want
		return pod, w.client.Status().Update(ctx, pod)
	}
	return pod, nil
}

func firstOrdinal(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

// replace ends a pod, at once unless its node does not answer.
func (w *Workloads) replace(ctx context.Context, pod *corev1.Pod) error {
	node := &corev1.Node{}
	err := w.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	isLost := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
	if !isLost {
		return w.client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
	if pod.DeletionTimestamp.IsZero() {
		return w.client.Delete(ctx, pod)
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// fits reports whether a node has all labels of the pod's node selector, and only taints that the pod tolerates.
func (w *Workloads) fits(ctx context.Context, pod *corev1.Pod) (bool, error) {
	nodes := &corev1.NodeList{}
	if err := w.client.List(ctx, nodes, client.MatchingLabels(pod.Spec.NodeSelector)); err != nil {
		return false, err
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		_, isTainted := corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, pod.Spec.Tolerations,
			ofMachines, false)
		if len(node.Status.Conditions) > 0 && !isTainted {
			return true, nil
		}
	}
	return false, nil
}

// ofMachines reports whether a taint keeps other pods off bought machines. Taints from a story that takes a node back
// come later than the pods.
func ofMachines(taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule && (taint.Key == v1beta1.TaintKey || taint.Key == v1beta1.TaintKeyWorkspace)
}

// wanted reports whether updates are held, and returns the status for a pod of the revision.
func (w *Workloads) wanted(key types.NamespacedName, revision string) (hold bool, status corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if script, ok := w.scripts[key]; ok && (script.spared == "" || script.spared != revision) {
		return w.held[key], script.status
	}
	return w.held[key], corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
}

// revisionOf names the template of a StatefulSet: other bytes, another name.
func revisionOf(set *appsv1.StatefulSet) string {
	hash := fnv.New32a()
	// Templates come from the API server and hold only JSON values.
	_ = json.NewEncoder(hash).Encode(set.Spec.Template)
	return fmt.Sprintf("%s-%08x", set.Name, hash.Sum32())
}

func podOf(set *appsv1.StatefulSet, revision string, key types.NamespacedName) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(),
		Spec:       *set.Spec.Template.Spec.DeepCopy(),
	}
	pod.Name, pod.Namespace = key.Name, key.Namespace
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Labels[appsv1.PodIndexLabel] = key.Name[strings.LastIndex(key.Name, "-")+1:]
	pod.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet")),
	}
	return pod
}
