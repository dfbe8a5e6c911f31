// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// kubelets stand in for the controller of StatefulSets, the scheduler and the kubelets: a pod runs on a matching node,
// and ends with its node.
type kubelets struct {
	world *world
	// hashes of templates, by StatefulSet and generation.
	hashes map[string]string
	// nodes are the Ready ones, in order, and free their remaining GPUs, while pods are scheduled.
	nodes []*corev1.Node
	free  map[string]int64
}

// settle does whatever can be done now.
func (k *kubelets) settle() {
	for _, pod := range all[corev1.Pod](k.world.server) {
		if pod.Spec.NodeName != "" && k.world.server.objects[nodes][nameOf(pod.Spec.NodeName)] == nil {
			k.world.server.remove(pod)
		}
	}
	k.count()
	for _, set := range all[appsv1.StatefulSet](k.world.server) {
		if set.DeletionTimestamp.IsZero() {
			k.run(set)
		}
	}
	for _, service := range all[corev1.Service](k.world.server) {
		k.connect(service)
	}
}

// connect stands in for the controller of EndpointSlices: a Service sends requests to the ready pods that it selects.
func (k *kubelets) connect(service *corev1.Service) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: service.Namespace, Name: service.Name, Labels: maps.Clone(service.Labels),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service"))},
	}}
	slice.Labels[discoveryv1.LabelServiceName] = service.Name
	for _, pod := range all[corev1.Pod](k.world.server) {
		isSelected := pod.Namespace == service.Namespace && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
		if isSelected && isReady(pod) {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{UID: pod.UID}})
		}
	}
	known, isThere := k.world.server.objects[endpoints][client.ObjectKeyFromObject(slice)].(*discoveryv1.EndpointSlice)
	switch {
	case !isThere:
		_ = k.world.server.create(slice)
	case !equality.Semantic.DeepEqual(known.Endpoints, slice.Endpoints):
		edit(k.world.server, known, func(s *discoveryv1.EndpointSlice) { s.Endpoints = slice.Endpoints })
	}
}

// count finds the nodes with free GPUs.
func (k *kubelets) count() {
	k.nodes = slices.DeleteFunc(all[corev1.Node](k.world.server), func(node *corev1.Node) bool { return !isNodeReady(node) })
	k.free = map[string]int64{}
	for _, node := range k.nodes {
		quantity := node.Status.Allocatable[gpu]
		k.free[node.Name] = quantity.Value()
	}
	for _, pod := range all[corev1.Pod](k.world.server) {
		k.free[pod.Spec.NodeName] -= gpusOf(pod)
	}
}

func (k *kubelets) run(set *appsv1.StatefulSet) {
	update := k.hash(set)
	state := appsv1.StatefulSetStatus{
		ObservedGeneration: set.Generation, UpdateRevision: update, CurrentRevision: set.Status.CurrentRevision,
	}
	first := 0
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	for ordinal := range int(*set.Spec.Replicas) {
		pod := k.pod(set, update, first+ordinal)
		if pod == nil {
			continue
		}
		state.Replicas++
		if isReady(pod) {
			state.ReadyReplicas++
			state.AvailableReplicas++
		}
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == update {
			state.UpdatedReplicas++
		}
	}
	if state.CurrentRevision == "" || state.UpdatedReplicas == state.Replicas && state.ReadyReplicas == state.Replicas {
		state.CurrentRevision = update
	}
	if !equality.Semantic.DeepEqual(state, set.Status) {
		edit(k.world.server, set, func(s *appsv1.StatefulSet) { s.Status = state })
	}
}

// pod brings one pod of a set a stage further; nil if it had to end.
func (k *kubelets) pod(set *appsv1.StatefulSet, update string, ordinal int) *corev1.Pod {
	key := nameOf(fmt.Sprintf("%s-%d", set.Name, ordinal))
	key.Namespace = set.Namespace
	pod, isThere := k.world.server.objects[pods][key].(*corev1.Pod)
	switch {
	case !isThere && k.isRefused(set):
		k.refuse(set)
		return nil
	case !isThere:
		pod = podOf(set, update, ordinal)
		_ = k.world.server.create(pod)
	case pod.Labels[appsv1.ControllerRevisionHashLabelKey] != update && set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType:
		k.world.server.remove(pod)
		return nil
	case pod.Spec.NodeName == "":
		k.schedule(pod)
	}
	return pod
}

// schedule binds a pod to a matching node with free GPUs. It is ready a little later.
func (k *kubelets) schedule(pod *corev1.Pod) {
	for _, node := range k.nodes {
		if k.free[node.Name] < gpusOf(pod) || !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
			continue
		}
		if _, isTainted := corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, pod.Spec.Tolerations, nil, false); isTainted {
			continue
		}
		k.free[node.Name] -= gpusOf(pod)
		edit(k.world.server, pod, func(p *corev1.Pod) {
			p.Spec.NodeName = node.Name
			p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0.1"
		})
		k.world.after(20*time.Second, func() { k.ready(pod) })
		return
	}
}

// isRefused reports whether the cluster refuses the pods of a set.
func (k *kubelets) isRefused(set *appsv1.StatefulSet) bool {
	is := k.world.ills.of(set)
	return is != nil && is.refused
}

func (k *kubelets) ready(pod *corev1.Pod) {
	is := k.illOf(pod)
	edit(k.world.server, pod, func(p *corev1.Pod) {
		if is != nil && !is.refused {
			is.crash(p, k.world.now())
			return
		}
		p.Status.ContainerStatuses = nil
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(k.world.now()).Rfc3339Copy(),
		}}
	})
}

func (k *kubelets) hash(set *appsv1.StatefulSet) string {
	key := fmt.Sprintf("%s/%d", set.UID, set.Generation)
	known, ok := k.hashes[key]
	if !ok {
		sum := fnv.New32a()
		_ = json.NewEncoder(sum).Encode(set.Spec.Template)
		known = fmt.Sprintf("%08x", sum.Sum32())
		k.hashes[key] = known
	}
	return known
}

func podOf(set *appsv1.StatefulSet, revision string, ordinal int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, ordinal), Labels: map[string]string{},
			Annotations:     set.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	maps.Copy(pod.Labels, set.Spec.Template.Labels)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
	return pod
}

func isReady(pod *corev1.Pod) bool {
	return len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == corev1.ConditionTrue
}

func isNodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func gpusOf(pod *corev1.Pod) int64 {
	var sum int64
	for i := range pod.Spec.Containers {
		asked := pod.Spec.Containers[i].Resources.Limits[gpu]
		sum += asked.Value()
	}
	return sum
}
