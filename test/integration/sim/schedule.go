// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gpu is the stand-in's only counted resource.
const gpu corev1.ResourceName = "nvidia.com/gpu"

// schedulerDelay is the pause before another look at a pod without a fitting node.
const schedulerDelay = 50 * time.Millisecond

// isPlaced reports whether a pod asks for certain nodes; if not, its labels identify it.
func isPlaced(pod *corev1.Pod) bool {
	affinity := pod.Spec.Affinity
	return affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

// candidates returns a pod's possible nodes, by name.
func (w *Workloads) candidates(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	nodes := &corev1.NodeList{}
	if err := w.client.List(ctx, nodes); err != nil {
		return nil, err
	}
	var names []string
	for i := range nodes.Items {
		fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(&nodes.Items[i])
		if err != nil {
			return nil, err
		}
		if fits {
			names = append(names, nodes.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// schedule binds a pod to the first of its nodes with room, or marks it unschedulable, and reports whether the pod is
// bound. A lost node takes its pods with it.
func (w *Workloads) schedule(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if pod.Spec.NodeName != "" {
		err := w.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &corev1.Node{})
		if apierrors.IsNotFound(err) {
			return false, client.IgnoreNotFound(w.client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		}
		return err == nil && pod.DeletionTimestamp.IsZero(), err
	}
	names, err := w.candidates(ctx, pod)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		hasRoom, err := w.hasRoom(ctx, name, pod)
		if err != nil {
			return false, err
		}
		if hasRoom {
			binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: name}}
			return false, w.client.SubResource("binding").Create(ctx, pod, binding)
		}
	}
	if len(pod.Status.Conditions) > 0 {
		return false, nil
	}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: 1 Insufficient nvidia.com/gpu", LastTransitionTime: metav1.Now(),
	}}
	return false, w.client.Status().Update(ctx, pod)
}

// hasRoom reports whether a node is Ready and has enough free GPUs for a pod.
func (w *Workloads) hasRoom(ctx context.Context, name string, pod *corev1.Pod) (bool, error) {
	node := &corev1.Node{}
	if err := w.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	isReady := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	pods := &corev1.PodList{}
	if err := w.live.List(ctx, pods); err != nil { // the cache may lack the latest bindings
		return false, err
	}
	used := gpusOf(pod)
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == name {
			used += gpusOf(&pods.Items[i])
		}
	}
	has := node.Status.Allocatable[gpu]
	return isReady && !node.Spec.Unschedulable && used <= has.Value(), nil
}

func gpusOf(pod *corev1.Pod) int64 {
	var sum int64
	for i := range pod.Spec.Containers {
		asked := pod.Spec.Containers[i].Resources.Limits[gpu]
		sum += asked.Value()
	}
	return sum
}
