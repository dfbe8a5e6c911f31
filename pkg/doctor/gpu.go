// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
)

// nvidia is the resource name of NVIDIA GPUs.
const nvidia = "nvidia.com/gpu"

// checkPlugins checks the device plugins for new machines, as the controller does before it buys machines.
func checkPlugins(e *examination) {
	if !e.snapshot.isRead("DaemonSet") {
		return
	}
	sets := typed[appsv1.DaemonSet](e.snapshot, "DaemonSet")
	for _, d := range e.controllers() {
		backEnd := e.backEnd(&d)
		buys := backEnd == "nodeclaim" || backEnd == "nodepool"
		isChecked := first(setting(&d, "gpu-plugin-check"), "true") != "false"
		trusted := preflight.TrustedDaemonSets(sets, namespacesOf(&d))
		problem := preflight.MissingPlugin(trusted, nvidia)
		if buys && isChecked && problem != "" && len(e.snapshot.of("ClusterPolicy")) == 0 {
			e.fail("GPUPluginMissing", "", problem, install+" --set=devicePlugin.enabled=true")
		}
		if excluded := preflight.ExcludedDaemonSets(trusted); buys && first(setting(&d, "dedicated-taint"),
			"Auto") == "Enabled" && excluded != "" {
			e.fail("TaintNotTolerated", "", "capacity.dedicatedTaint is Enabled, but "+excluded,
				"add the toleration, or: "+install+" --set=capacity.dedicatedTaint=Auto")
		}
	}
	for i := range sets {
		set := &sets[i]
		isOfGPUs := strings.Contains(set.Name, "nvidia") || strings.Contains(set.Name, "gpu")
		if isOfGPUs && set.Status.NumberUnavailable > 0 {
			e.fail("GPUDaemonSetUnavailable", named("DaemonSet", set.Namespace, set.Name),
				fmt.Sprintf("%d of %d pods are not available", set.Status.NumberUnavailable, set.Status.DesiredNumberScheduled),
				fmt.Sprintf("kubectl describe daemonset %s --namespace=%s", set.Name, set.Namespace))
		}
	}
}

// namespacesOf returns the namespaces whose DaemonSets a controller accepts. A controller without the setting is older
// and accepts all.
func namespacesOf(d *appsv1.Deployment) []string {
	if out := setting(d, "daemonset-namespace"); len(out) > 0 {
		return out
	}
	return []string{"*"}
}

// checkOperator checks NVIDIA's GPU operator, if there is one.
func checkOperator(e *examination) {
	for _, policy := range e.snapshot.of("ClusterPolicy") {
		state, _, _ := unstructured.NestedString(policy.Object, "status", "state")
		if state != "ready" {
			e.fail("GPUOperatorNotReady", called(&policy), "status.state is "+orAbsent(state),
				"kubectl describe clusterpolicy "+policy.GetName())
		}
	}
}

// checkNodes checks nodes with GPUs and our own machines.
func checkNodes(e *examination) {
	for _, node := range typed[corev1.Node](e.snapshot, "Node") {
		isOurs := node.Labels[v1beta1.LabelMachineWorkspaceName] != "" || node.Labels[v1beta1.LabelWorkspaceUID] != ""
		capacity, allocatable := node.Status.Capacity[nvidia], node.Status.Allocatable[nvidia]
		hasGPUs := node.Labels["nvidia.com/gpu.present"] == "true" || !capacity.IsZero()
		if !isOurs && !hasGPUs {
			continue
		}
		object, describe := named("Node", "", node.Name), "kubectl describe node "+node.Name
		if problem := nodeProblem(&node); problem != "" {
			e.fail("NodeUnhealthy", object, problem, describe)
			continue
		}
		switch {
		case hasGPUs && capacity.IsZero():
			e.fail("GPUsNotAdvertised", object, "the node has GPUs, but no device plugin advertises "+nvidia,
				"kubectl get pods -A --field-selector=spec.nodeName="+node.Name+" lists the device plugin: read its log")
		case allocatable.Cmp(capacity) < 0:
			e.fail("GPUsFaulty", object, fmt.Sprintf("%s of %s GPUs are allocatable", allocatable.String(), capacity.String()),
				"kubectl drain "+node.Name+", then replace the machine")
		}
	}
}

// nodeProblem returns a bad condition of a node, or another fault that the node reports; empty if there is none.
func nodeProblem(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		isReady := c.Type == corev1.NodeReady
		isPressure := slices.Contains([]corev1.NodeConditionType{
			corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable,
		}, c.Type)
		if isReady && c.Status != corev1.ConditionTrue || isPressure && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("condition %s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
	return nodehealth.Of(node).Message
}
