// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// living returns the pods that are not being deleted, by name.
func living(pods []corev1.Pod) []corev1.Pod {
	var kept []corev1.Pod
	for i := range pods {
		if pods[i].DeletionTimestamp == nil {
			kept = append(kept, pods[i])
		}
	}
	slices.SortFunc(kept, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return kept
}

func ready(pods []corev1.Pod) int {
	count := 0
	for i := range pods {
		if podCondition(&pods[i], corev1.PodReady) == corev1.ConditionTrue {
			count++
		}
	}
	return count
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

// nodeNamed returns the node of that name, or nil.
func nodeNamed(nodes []corev1.Node, name string) *corev1.Node {
	i := slices.IndexFunc(nodes, func(node corev1.Node) bool { return node.Name == name })
	if i < 0 {
		return nil
	}
	return &nodes[i]
}

func isReady(node corev1.Node) bool {
	return nodeCondition(&node, corev1.NodeReady) == corev1.ConditionTrue
}

func byName(nodes []corev1.Node) []corev1.Node {
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return sorted
}

func isLost(name string, nodes []corev1.Node) bool {
	node := nodeNamed(nodes, name)
	return node != nil && !isReady(*node)
}

// isDone reports whether an init container succeeded, or a sidecar passed its startup probe.
func isDone(status *corev1.ContainerStatus) bool {
	if terminated := status.State.Terminated; terminated != nil {
		return terminated.ExitCode == 0
	}
	return status.State.Running != nil && ptr.Deref(status.Started, false)
}

// unsettled returns the statuses of containers that are not up, init containers first.
func unsettled(pod *corev1.Pod) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for _, status := range pod.Status.InitContainerStatuses {
		if !isDone(&status) {
			list = append(list, status)
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if !status.Ready {
			list = append(list, status)
		}
	}
	return list
}

// ended returns the last end of a container, even if the next try waits or runs; nil once that try has passed its
// startup probe.
func ended(pod *corev1.Pod, status corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if status.State.Terminated != nil {
		return status.State.Terminated
	}
	container, _ := containerOf(pod, status)
	if status.State.Running != nil && container.StartupProbe != nil && ptr.Deref(status.Started, false) {
		return nil
	}
	return status.LastTerminationState.Terminated
}

func containerOf(pod *corev1.Pod, status corev1.ContainerStatus) (corev1.Container, bool) {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if container.Name == status.Name {
			return container, true
		}
	}
	return corev1.Container{}, false
}

func waitingReason(status corev1.ContainerStatus) string {
	if status.State.Waiting == nil {
		return ""
	}
	return status.State.Waiting.Reason
}

// imageOf returns a container's image. It prefers the reference in the spec to the one that the runtime resolved.
func imageOf(pod *corev1.Pod, status corev1.ContainerStatus) string {
	if container, found := containerOf(pod, status); found {
		return container.Image
	}
	return status.Image
}

func isStartFailure(last *corev1.ContainerStateTerminated) bool {
	return last.Reason == "StartError" || last.Reason == "ContainerCannotRun"
}

const reasonOOMKilled = "OOMKilled"
