// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// unschedulable names the resource that the Workspace's own machine lacks, or else quotes the scheduler. The
// scheduler's message covers all nodes of the cluster. Without a machine, the finding is only pending: ResourceReady
// explains the delay.
func unschedulable(in *Input, pod *corev1.Pod) (Finding, bool) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type != corev1.PodScheduled || condition.Reason != corev1.PodReasonUnschedulable {
			continue
		}
		if !slices.ContainsFunc(in.Nodes, isReady) {
			return pending(WaitsForMachines), true
		}
		if why, next := lacking(pod, in.Nodes); why != "" {
			return finding(v1beta1.ReasonUnschedulable, "no node can run pod %q, because %s: %s", pod.Name, why, next), true
		}
		return finding(v1beta1.ReasonUnschedulable,
			"no node can run pod %q%s: free a node, allow another machine type, or remove the unmet request",
			pod.Name, quoted(schedulerSentence(condition.Message))), true
	}
	return Finding{}, false
}

// lacking compares a pod with the machines bought for it. It returns the first obstacle on a Ready machine: a taint
// that the pod does not tolerate, or a resource that the machine has too little of.
func lacking(pod *corev1.Pod, nodes []corev1.Node) (why, next string) {
	for _, node := range byName(nodes) {
		if !isReady(node) {
			continue
		}
		if taint := untolerated(pod, &node); taint != "" {
			return fmt.Sprintf("it does not tolerate the taint %s of node %q", taint, node.Name),
				"add a toleration to inference.pod.tolerations, or remove the taint once its cause is gone"
		}
		asked := requests(pod)
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			want, has := asked[name], node.Status.Allocatable[name]
			if len(node.Status.Allocatable) == 0 || want.Cmp(has) <= 0 {
				continue
			}
			return fmt.Sprintf("it requests %s of %s, but node %q has only %s", want.String(), name, node.Name, has.String()), moreOf(name)
		}
	}
	return "", ""
}

// moreOf is the remedy for an insufficient resource.
func moreOf(name corev1.ResourceName) string {
	switch name {
	case corev1.ResourceCPU:
		return "lower inference.pod.cpu, or allow a machine type with more"
	case corev1.ResourceMemory:
		return "lower inference.pod.memory, or allow a machine type with more"
	case corev1.ResourceEphemeralStorage:
		return "allow a machine type with a larger disk, or use a NodeClass with a larger disk"
	default:
		return "check that the device plugin runs on the node and finds all devices"
	}
}

// untolerated returns the first taint of a node that the pod does not tolerate.
func untolerated(pod *corev1.Pod, node *corev1.Node) string {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		isTolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool {
			return toleration.ToleratesTaint(klog.Logger{}, taint, false)
		})
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !isTolerated {
			return taint.ToString()
		}
	}
	return ""
}

// requests returns a pod's requests as the scheduler counts them: the sum over its containers and sidecars.
func requests(pod *corev1.Pod) corev1.ResourceList {
	sum := corev1.ResourceList{}
	add := func(container *corev1.Container) {
		for name, quantity := range container.Resources.Requests {
			total := sum[name]
			total.Add(quantity)
			sum[name] = total
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if ptr.Deref(pod.Spec.InitContainers[i].RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			add(&pod.Spec.InitContainers[i])
		}
	}
	return sum
}

// schedulerSentence removes the numbers of nodes from the scheduler's message, and sorts the reasons. Numbers and order
// change with any node of the cluster.
func schedulerSentence(message string) string {
	head, rest, found := strings.Cut(message, "nodes are available: ")
	if !found || !regexp.MustCompile(`^\d+/\d+ $`).MatchString(head) {
		return steady(message)
	}
	// The text about preemption follows the reasons.
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

// splitReasons cuts only at a ", " before a count, because taints contain commas, too.
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

// evicted covers pods that the node ended or never admitted. Their StatefulSet replaces them.
func evicted(_ *Input, pod *corev1.Pod) (Finding, bool) {
	if pod.Status.Phase != corev1.PodFailed {
		return Finding{}, false
	}
	// The kubelet's first sentence names the exhausted resource; the rest counts bytes.
	why, _, _ := strings.Cut(steady(pod.Status.Message), ". ")
	why = strings.TrimRight(why, ". ")
	if pod.Status.Reason == "Evicted" {
		return finding(v1beta1.ReasonPodEvicted,
			"pod %q was evicted from node %q%s: it is created again; if that repeats, allow a machine type with more of that resource",
			pod.Name, pod.Spec.NodeName, quoted(why)), true
	}
	return finding(v1beta1.ReasonContainerStartError,
		"node %q ended pod %q with %s%s: it is created again; if that repeats, see the node's kubelet log",
		pod.Spec.NodeName, pod.Name, pod.Status.Reason, quoted(why)), true
}

func pressure(pods []corev1.Pod, nodes []corev1.Node) (Finding, bool) {
	sorted := byName(nodes)
	for i := range sorted {
		node := &sorted[i]
		if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == "" || pod.Spec.NodeName == node.Name }) {
			continue
		}
		if nodeCondition(node, corev1.NodeDiskPressure) == corev1.ConditionTrue {
			return finding(v1beta1.ReasonNodeDiskPressure,
				"node %q is low on disk space: free some, or allow a machine type with a larger disk", node.Name), true
		}
		if nodeCondition(node, corev1.NodeMemoryPressure) == corev1.ConditionTrue {
			return finding(v1beta1.ReasonNodeMemoryPressure,
				"node %q is short of main memory: free some, or allow a machine type with more", node.Name), true
		}
	}
	return Finding{}, false
}
