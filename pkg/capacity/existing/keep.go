// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package existing

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Keep is a transform for a cache of all nodes. It keeps the fields that decide about a node's use, and drops the
// rest: the list of images alone is most of a node's size.
func Keep(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields = nil
	gpu, annotated := node.Annotations[v1beta1.AnnotationGPU]
	node.Annotations = nil
	if annotated {
		node.Annotations = map[string]string{v1beta1.AnnotationGPU: gpu}
	}
	node.Status = corev1.NodeStatus{
		Allocatable: node.Status.Allocatable, Capacity: exceeding(&node.Status), Conditions: node.Status.Conditions,
		NodeInfo: corev1.NodeSystemInfo{Architecture: node.Status.NodeInfo.Architecture}, // an image may not support it
	}
	for i := range node.Status.Conditions {
		// It changes all the time, and we do not use it.
		node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return node, nil
}

// exceeding returns the capacity of devices that a node cannot allocate in full; nil for most nodes.
func exceeding(status *corev1.NodeStatus) corev1.ResourceList {
	var out corev1.ResourceList
	for name, has := range status.Capacity {
		usable := status.Allocatable[name]
		if !strings.Contains(string(name), "/") || usable.Cmp(has) >= 0 { // devices have a domain in their names
			continue
		}
		if out == nil {
			out = corev1.ResourceList{}
		}
		out[name] = has
	}
	return out
}
