// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// outOfMemory distinguishes a container that reached its limit from a node that ran out of memory: an engine on a bought
// machine has no limit.
func outOfMemory(in *Input, pod *corev1.Pod) (Finding, bool) {
	for _, status := range unsettled(pod) {
		last := ended(pod, status)
		if last == nil || last.Reason != reasonOOMKilled {
			continue
		}
		container, _ := containerOf(pod, status)
		if limit, limited := container.Resources.Limits[corev1.ResourceMemory]; limited {
			return finding(v1beta1.ReasonContainerOOMKilled,
				"container %q of pod %q was killed at its limit of %s of main memory: %s",
				status.Name, pod.Name, limit.String(), in.higherLimit()), true
		}
		asked := "requests none"
		if request, given := container.Resources.Requests[corev1.ResourceMemory]; given {
			asked = "requests " + request.String()
		}
		return finding(v1beta1.ReasonContainerOOMKilled,
			"container %q of pod %q was killed because node %q ran out of main memory (the container "+
				"%s): raise inference.pod.memory, or allow a machine type with more",
			status.Name, pod.Name, pod.Spec.NodeName, asked), true
	}
	return Finding{}, false
}

// higherLimit is the remedy for a memory limit that is too low. The limit of a preset's engine follows its request,
// unless a LimitRange sets it.
func (in *Input) higherLimit() string {
	if in.Plan == nil || in.Plan.Engine == "" {
		return "raise or remove the limit"
	}
	return "raise inference.pod.memory, or the default limit of the namespace's LimitRange if that is lower"
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
		if rule, groups := in.Signatures.find(why); rule != nil && rule.Reason == v1beta1.ReasonWrongArchitecture {
			says, next := rule.sentences(groups, in.place(pod, status))
			return finding(rule.Reason, "container %q of pod %q cannot start, because %s: %s", status.Name, pod.Name, says, next), true
		}
		return finding(v1beta1.ReasonContainerStartError,
			"container %q of pod %q cannot start%s: create the missing object or file, or correct its name",
			status.Name, pod.Name, quoted(steady(why))), true
	}
	return Finding{}, false
}

// place returns the location of a container, for the sentences of signatures.
func (in *Input) place(pod *corev1.Pod, status corev1.ContainerStatus) place {
	arch := "the machine's processor"
	if node := nodeNamed(in.Nodes, pod.Spec.NodeName); node != nil && node.Status.NodeInfo.Architecture != "" {
		arch = "the machine's processor (" + node.Status.NodeInfo.Architecture + ")"
	}
	return place{pod: pod.Name, container: status.Name, image: imageOf(pod, status), arch: arch}
}
