// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

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

// ended returns how the container last ended, also during or before the next try; nil once a startup probe has
// passed since.
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

// imageOf prefers the user's reference to the runtime's resolved one.
func imageOf(pod *corev1.Pod, status corev1.ContainerStatus) string {
	if container, found := containerOf(pod, status); found {
		return container.Image
	}
	return status.Image
}

const reasonOOMKilled = "OOMKilled"

// outOfMemory distinguishes a container's own limit from a node that ran out of memory: our engines have no limit.
func outOfMemory(_ *Input, pod *corev1.Pod) (Finding, bool) {
	for _, status := range unsettled(pod) {
		last := ended(pod, status)
		if last == nil || last.Reason != reasonOOMKilled {
			continue
		}
		container, _ := containerOf(pod, status)
		if limit, limited := container.Resources.Limits[corev1.ResourceMemory]; limited {
			return finding(v1beta1.ReasonContainerOOMKilled,
				"container %q of pod %q was killed at its limit of %s of main memory: raise or remove the limit",
				status.Name, pod.Name, limit.String()), true
		}
		asked := "asks for none"
		if request, given := container.Resources.Requests[corev1.ResourceMemory]; given {
			asked = "asks for " + request.String()
		}
		return finding(v1beta1.ReasonContainerOOMKilled,
			"container %q of pod %q was killed because node %q ran out of main memory (it %s): "+
				"raise inference.pod.memory, or allow a machine type with more",
			status.Name, pod.Name, pod.Spec.NodeName, asked), true
	}
	return Finding{}, false
}

func isStartFailure(last *corev1.ContainerStateTerminated) bool {
	return last.Reason == "StartError" || last.Reason == "ContainerCannotRun"
}

// startError covers containers that never ran: a missing Secret, ConfigMap, key or command.
func startError(in *Input, pod *corev1.Pod) (Finding, bool) {
	reasons := []string{
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError",
		"PreCreateHookError", "PreStartHookError", "PostStartHookError",
	}
	for _, status := range unsettled(pod) {
		why, found := "", false
		if slices.Contains(reasons, waitingReason(status)) {
			why, found = status.State.Waiting.Message, true
		}
		if last := ended(pod, status); last != nil && isStartFailure(last) {
			why, found = last.Message, true
		}
		if !found {
			continue
		}
		if rule, groups := in.Words.find(why); rule != nil && rule.Reason == v1beta1.ReasonWrongArchitecture {
			says, next := rule.sentences(groups, in.place(pod, status))
			return finding(rule.Reason, "container %q of pod %q cannot start, because %s: %s", status.Name, pod.Name, says, next), true
		}
		return finding(v1beta1.ReasonContainerStartError,
			"container %q of pod %q cannot start%s: create what is missing, or correct the reference",
			status.Name, pod.Name, quoted(steady(why))), true
	}
	return Finding{}, false
}

// place is the location of a container, in the words of rules.
func (in *Input) place(pod *corev1.Pod, status corev1.ContainerStatus) place {
	arch := "the machine's processor"
	if node := nodeNamed(in.Nodes, pod.Spec.NodeName); node != nil && node.Status.NodeInfo.Architecture != "" {
		arch = "the machine's processor (" + node.Status.NodeInfo.Architecture + ")"
	}
	return place{pod: pod.Name, container: status.Name, image: imageOf(pod, status), arch: arch}
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", wording.Clip(text, maxQuote))
}
