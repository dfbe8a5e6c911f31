// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/workload"
)

// unsettled returns the statuses of containers that have not come up, init containers first.
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

// ended returns how the container ended last, also while it is between two tries or at the next one;
// nil once a startup probe has found that it came up since.
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

// imagePull names the image and what kind of failure it is. The kubelet's own words alternate between
// two forms and may hold ports and request ids.
func imagePull(pod *corev1.Pod) (Finding, bool) {
	reasons := []string{
		"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed",
	}
	for _, status := range unsettled(pod) {
		if !slices.Contains(reasons, waitingReason(status)) {
			continue
		}
		what, next := pullFailure(status.State.Waiting.Reason, status.State.Waiting.Message)
		return finding(v1beta1.ReasonImagePullError, "node %q cannot pull image %q of container %q, because %s: %s",
			pod.Spec.NodeName, imageOf(pod, status), status.Name, what, next), true
	}
	return Finding{}, false
}

// imageOf prefers the reference that the user knows to what the runtime resolved it to.
func imageOf(pod *corev1.Pod, status corev1.ContainerStatus) string {
	if container, found := containerOf(pod, status); found {
		return container.Image
	}
	return status.Image
}

func pullFailure(reason, message string) (what, next string) {
	message = strings.ToLower(message)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(message, word) })
	}
	switch {
	case reason == "InvalidImageName":
		return "that is no image reference", "correct it"
	case reason == "ErrImageNeverPull":
		return "it is not on the node and may not be pulled", "load it there, or allow the pull"
	case reason == "SignatureValidationFailed":
		return "its signature is not accepted", "use a signed image, or change the node's policy"
	case has("unauthorized", "401", "403", "denied", "authorization failed"):
		return "the registry refuses access", "correct the name, or let the node's or the ServiceAccount's credentials read it"
	case has("not found", "manifest unknown", "notfound"):
		return "the registry does not have it", "correct the name or the tag"
	case has("no space left"):
		return "the node's disk is full", "allow a machine type with a larger disk"
	case has("no such host", "timeout", "connection refused", "no route", "dial ", "deadline exceeded", "tls", "x509", "eof"):
		return "the registry cannot be reached from there", "check the name, the node's network and the registry's certificate"
	default:
		return "the pull fails", "kubectl describe pod shows the registry's answer"
	}
}

// weights turns the agent's last words into a reason. It stays while the agent tries again, because a
// status cannot tell a try that will end the same way from one that moves.
func weights(pod *corev1.Pod) (Finding, bool) {
	for _, status := range unsettled(pod) {
		last := ended(pod, status)
		if status.Name != workload.WeightsContainer || last == nil || last.ExitCode == 0 {
			continue
		}
		if last.Reason == reasonOOMKilled || isStartFailure(last) {
			continue
		}
		reason, message := agentSentence(last)
		return finding(reason, "%s (it is tried again)", message), true
	}
	return Finding{}, false
}

func agentSentence(last *corev1.ContainerStateTerminated) (reason, message string) {
	// What modelberth-agent leaves in its termination message, by its own reasons.
	reasons := map[string]string{
		"HubUnreachable":   v1beta1.ReasonWeightsHubUnreachable,
		"Unauthorized":     v1beta1.ReasonWeightsUnauthorized,
		"NotFound":         v1beta1.ReasonWeightsNotFound,
		"ChecksumMismatch": v1beta1.ReasonWeightsChecksum,
		"DiskFull":         v1beta1.ReasonWeightsDiskFull,
	}
	var said struct{ Reason, Message string }
	if json.Unmarshal([]byte(last.Message), &said) != nil || said.Message == "" {
		return v1beta1.ReasonWeightsFetchFailed,
			fmt.Sprintf("fetching the weights ended with exit code %d%s", last.ExitCode, quoted(errorLine(last.Message)))
	}
	message = clip(withoutPorts(said.Message), maxMessage-len(" (it is tried again)"))
	if reason, known := reasons[said.Reason]; known {
		return reason, message
	}
	return v1beta1.ReasonWeightsFetchFailed, message
}

const reasonOOMKilled = "OOMKilled"

func outOfMemory(pod *corev1.Pod) (Finding, bool) {
	for _, status := range unsettled(pod) {
		if last := ended(pod, status); last != nil && last.Reason == reasonOOMKilled {
			return finding(v1beta1.ReasonContainerOOMKilled,
				"container %q of pod %q was killed for lack of main memory: "+
					"allow a machine type with more of it, and raise its memory request or limit", status.Name, pod.Name), true
		}
	}
	return Finding{}, false
}

// crash covers every container that ended and should not have, whether it waits, starts again or has
// just ended: those states follow each other and are one and the same finding.
func crash(pod *corev1.Pod) (Finding, bool) {
	for _, status := range unsettled(pod) {
		last := ended(pod, status)
		if last == nil || isStartFailure(last) {
			continue
		}
		line := errorLine(last.Message)
		return finding(v1beta1.ReasonContainerCrashLoop, "container %q of pod %q ended with exit code %d%s and is started again: %s",
			status.Name, pod.Name, last.ExitCode, quoted(line), crashAdvice(pod.Name, status.Name, line)), true
	}
	return Finding{}, false
}

func crashAdvice(pod, container, line string) string {
	if strings.Contains(strings.ToLower(line), "out of memory") {
		return "lower inference.objectives.maxModelLen or .concurrency, or allow GPUs with more memory"
	}
	return fmt.Sprintf("kubectl logs --previous %s -c %s tells more", pod, container)
}

func isStartFailure(last *corev1.ContainerStateTerminated) bool {
	return last.Reason == "StartError" || last.Reason == "ContainerCannotRun"
}

// startError covers containers that never ran: a missing Secret, ConfigMap, key or command.
func startError(pod *corev1.Pod) (Finding, bool) {
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
		return finding(v1beta1.ReasonContainerStartError,
			"container %q of pod %q cannot start%s: create what is missing, or correct the reference",
			status.Name, pod.Name, quoted(steady(why))), true
	}
	return Finding{}, false
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", clip(text, maxQuote))
}
