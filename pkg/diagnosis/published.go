// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

// Warning is an event about a pod, or about the set that should create it.
type Warning struct {
	// About is the object's UID.
	About   types.UID
	Reason  string
	Message string
}

// PublishedReasons are the reasons of findings that quote a Warning.
func PublishedReasons() []string {
	return []string{v1beta1.ReasonVolumeNotMounted, v1beta1.ReasonPodSandboxFailed, v1beta1.ReasonPodRefused}
}

// Silent returns the sorted UIDs of objects whose status does not explain a delay. Events about these objects may
// explain it. They are pods that have a node but have not started, and StatefulSets with too few pods.
func Silent(pods []corev1.Pod, sets []*appsv1.StatefulSet) []types.UID {
	var out []types.UID
	for _, pod := range living(pods) {
		if isSilent(&pod) {
			out = append(out, pod.UID)
		}
	}
	for _, set := range sets {
		if set.DeletionTimestamp == nil && set.Status.ObservedGeneration == set.Generation &&
			set.Status.Replicas < ptr.Deref(set.Spec.Replicas, 1) {
			out = append(out, set.UID)
		}
	}
	slices.Sort(out)
	return out
}

// isSilent reports whether a node is preparing a pod, without any detail in the pod's status.
func isSilent(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending {
		return false
	}
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	return !slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool {
		reason := waitingReason(status)
		return status.State.Waiting == nil && status.State != (corev1.ContainerState{}) ||
			reason != "" && reason != "ContainerCreating" && reason != "PodInitializing"
	})
}

// heldUp quotes an event about a pod that its node is preparing.
func heldUp(in *Input, pod *corev1.Pod) (Finding, bool) {
	if !isSilent(pod) {
		return Finding{}, false
	}
	for _, warning := range in.Warnings {
		if warning.About != pod.UID {
			continue
		}
		words := quoted(wording.Clip(steady(warning.Message), maxQuote))
		switch warning.Reason {
		case "FailedMount", "FailedAttachVolume", "FailedMapVolume":
			return finding(v1beta1.ReasonVolumeNotMounted,
				"node %q cannot mount a volume of pod %q%s: create the missing volume, Secret or ConfigMap, "+
					"or change its name in inference", pod.Spec.NodeName, pod.Name, words), true
		case "FailedCreatePodSandBox", "NetworkNotReady":
			return finding(v1beta1.ReasonPodSandboxFailed,
				"node %q cannot start pod %q%s: check the node's network and runtime class, and its kubelet log",
				pod.Spec.NodeName, pod.Name, words), true
		}
	}
	return Finding{}, false
}

// refusedPod quotes the reason why the API server rejects a StatefulSet's pod.
func refusedPod(in *Input) (Finding, bool) {
	for _, warning := range in.Warnings {
		if warning.Reason != "FailedCreate" {
			continue
		}
		// "create Pod chat-0 in StatefulSet chat failed error: pods "chat-0" is forbidden: …"
		_, words, _ := strings.Cut(warning.Message, "failed error: ")
		words = cmp.Or(words, warning.Message)
		return finding(v1beta1.ReasonPodRefused, "the cluster rejects the pod%s: %s",
			quoted(wording.Clip(steady(words), maxQuote)), WayPast(words)), true
	}
	return Finding{}, false
}

// WayPast returns the remedy for a pod that the API server refused with this message.
func WayPast(words string) string {
	switch {
	case strings.Contains(words, "exceeded quota"):
		return "raise the ResourceQuota of the namespace, or delete unused objects"
	case strings.Contains(words, "must specify limits."): // inference.pod has no limits
		return "add a LimitRange with defaults to the namespace"
	case strings.Contains(words, "must specify"): // a quota or a policy requires a setting of inference.pod
		return "set that resource in inference.pod, or add a LimitRange with defaults to the namespace"
	case strings.Contains(words, "PodSecurity"):
		return "change inference.pod or inference.template to meet the Pod Security level of the namespace, or have the administrator lower the level"
	case strings.Contains(words, "denied the request"):
		return "ask the owner of the policy for an exception, or change inference.pod"
	default:
		return "change the rejected field"
	}
}
