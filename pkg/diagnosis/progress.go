// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/workload"
)

// progress returns the stage of the first unready pod, if there is no problem.
func progress(pods []corev1.Pod, nodes []corev1.Node) Finding {
	for i := range pods {
		if podCondition(&pods[i], corev1.PodReady) != corev1.ConditionTrue {
			return stage(&pods[i], nodes)
		}
	}
	return pending("the StatefulSet has not created all pods yet: if this persists, kubectl describe statefulset shows why")
}

func stage(pod *corev1.Pod, nodes []corev1.Node) Finding {
	switch {
	case pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) > 0:
		return pending("pod %q is held back by scheduling gate %q: the controller or person that uses this gate must remove it",
			pod.Name, pod.Spec.SchedulingGates[0].Name)
	case pod.Spec.NodeName == "":
		return pending("pod %q waits for the scheduler", pod.Name)
	case isLost(pod.Spec.NodeName, nodes):
		return pending("pod %q waits for node %q to become ready again: see NodesReady", pod.Name, pod.Spec.NodeName)
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if isDone(status) {
			continue
		}
		if isFetching(pod, status) {
			return pending("pod %q is fetching weights: its container %q serves the progress at /progress", pod.Name, status.Name)
		}
		if status.State.Running != nil {
			return pending("pod %q runs init container %q", pod.Name, status.Name)
		}
		return preparing(pod, status.Name)
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.State.Running == nil {
			return preparing(pod, status.Name)
		}
		if !status.Ready {
			return pending("pod %q is starting the engine: kubectl logs %s shows its progress", pod.Name, pod.Name)
		}
	}
	return preparing(pod, "")
}

// preparing covers image pulls and volume mounts: a pod's status does not distinguish them.
func preparing(pod *corev1.Pod, container string) Finding {
	if container == "" {
		return pending("node %q prepares pod %q: if this persists, kubectl describe pod shows why", pod.Spec.NodeName, pod.Name)
	}
	return pending("node %q is pulling the image of container %q in pod %q, or mounting the pod's volumes: "+
		"if this persists, kubectl describe pod shows why",
		pod.Spec.NodeName, container, pod.Name)
}

// FetchingSince returns when the oldest running fetch of weights began; zero if none runs. An agent held until its
// group is isolated does not count: it keeps running after the fetch.
func FetchingSince(pods []corev1.Pod) time.Time {
	var since time.Time
	for _, pod := range living(pods) {
		if workload.IsHeld(&pod) {
			continue
		}
		for i := range pod.Status.InitContainerStatuses {
			status := &pod.Status.InitContainerStatuses[i]
			if !isFetching(&pod, status) || isDone(status) {
				continue
			}
			if began := status.State.Running.StartedAt.Time; since.IsZero() || began.Before(since) {
				since = began
			}
		}
	}
	return since
}

// isFetching reports whether a container is a running agent.
func isFetching(pod *corev1.Pod, status *corev1.ContainerStatus) bool {
	return status.State.Running != nil && status.Name == workload.WeightsContainer(pod.Labels[v1beta1.LabelWorkspace])
}
