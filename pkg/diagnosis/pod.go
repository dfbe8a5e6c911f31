// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// unschedulable quotes the scheduler, once there is a machine that it could have used: before, it says
// only that the machine is missing, which ResourceReady tells better.
func unschedulable(pod *corev1.Pod, nodes []corev1.Node) (Finding, bool) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type != corev1.PodScheduled || condition.Reason != corev1.PodReasonUnschedulable {
			continue
		}
		if !slices.ContainsFunc(nodes, isReady) {
			return pending("pod %q waits for its machine: see ResourceReady for how far that is", pod.Name), true
		}
		return finding(v1beta1.ReasonUnschedulable,
			"no node takes pod %q%s: free or allow a machine that does, or drop the demand that no node meets",
			pod.Name, quoted(schedulerSentence(condition.Message))), true
	}
	return Finding{}, false
}

func isReady(node corev1.Node) bool {
	return nodeCondition(&node, corev1.NodeReady) == corev1.ConditionTrue
}

// schedulerSentence takes the numbers of nodes out of the scheduler's message: they change whenever
// any node of the cluster does, and with them the order of the reasons.
func schedulerSentence(message string) string {
	head, rest, found := strings.Cut(message, "nodes are available: ")
	if !found || !regexp.MustCompile(`^\d+/\d+ $`).MatchString(head) {
		return steady(message)
	}
	// After the reasons follows what preemption could have done.
	rest, _, _ = strings.Cut(rest, ". ")
	count := regexp.MustCompile(`^\d+ (node\(s\) )?`)
	var reasons []string
	for _, reason := range splitReasons(strings.TrimRight(rest, ". ")) {
		reason = count.ReplaceAllString(reason, "")
		if reason != "" && !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	slices.Sort(reasons)
	return steady(strings.Join(reasons, ", "))
}

// splitReasons cuts at ", " where a count follows: taints quote braces and commas of their own.
func splitReasons(list string) []string {
	boundary := regexp.MustCompile(`, \d+ `)
	var reasons []string
	for {
		at := boundary.FindStringIndex(list)
		if at == nil {
			return append(reasons, list)
		}
		reasons = append(reasons, list[:at[0]])
		list = list[at[0]+len(", "):]
	}
}

// evicted covers pods that the node ended or never admitted. Their set replaces them by itself.
func evicted(pod *corev1.Pod) (Finding, bool) {
	if pod.Status.Phase != corev1.PodFailed {
		return Finding{}, false
	}
	// The kubelet's first sentence says what was short; the rest counts bytes.
	why, _, _ := strings.Cut(steady(pod.Status.Message), ". ")
	why = strings.TrimRight(why, ". ")
	if pod.Status.Reason == "Evicted" {
		return finding(v1beta1.ReasonPodEvicted,
			"pod %q was evicted from node %q%s: it is created again; if that repeats, allow a machine type with more of it",
			pod.Name, pod.Spec.NodeName, quoted(why)), true
	}
	return finding(v1beta1.ReasonContainerStartError,
		"node %q ended pod %q with %s%s: it is created again; if that repeats, the node's kubelet log tells more",
		pod.Spec.NodeName, pod.Name, pod.Status.Reason, quoted(why)), true
}

func pressure(pods []corev1.Pod, nodes []corev1.Node) (Finding, bool) {
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for i := range sorted {
		node := &sorted[i]
		if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == "" || pod.Spec.NodeName == node.Name }) {
			continue
		}
		if nodeCondition(node, corev1.NodeDiskPressure) == corev1.ConditionTrue {
			return finding(v1beta1.ReasonNodeDiskPressure,
				"node %q is short of disk: free some, or allow a machine type with a larger one", node.Name), true
		}
		if nodeCondition(node, corev1.NodeMemoryPressure) == corev1.ConditionTrue {
			return finding(v1beta1.ReasonNodeMemoryPressure,
				"node %q is short of main memory: free some, or allow a machine type with more", node.Name), true
		}
	}
	return Finding{}, false
}
