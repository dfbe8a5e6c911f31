// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/workload"
)

// report is the state of a Workspace, for programs and for the tree.
type report struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Model     string      `json:"model,omitempty"`
	Created   metav1.Time `json:"created"`
	health
	Plan     *v1beta1.PlanStatus `json:"plan,omitempty"`
	Attempts []v1beta1.Attempt   `json:"attempts,omitempty"`
	capacity
	Pods     []podReport               `json:"pods,omitempty"`
	Startup  []v1beta1.StartupStage    `json:"startup,omitempty"`
	Endpoint *v1beta1.Endpoint         `json:"endpoint,omitempty"`
	Measured map[string]v1beta1.Metric `json:"measured,omitempty"`
}

// health reports whether a Workspace serves, or the reason why not.
type health struct {
	State   v1beta1.WorkspaceState `json:"state,omitempty"`
	Ready   bool                   `json:"ready"`
	Stalled bool                   `json:"stalled"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
}

// capacity has the nodes or machines of a Workspace.
type capacity struct {
	Nodes    []string        `json:"nodes,omitempty"`
	Machines []machineReport `json:"machines,omitempty"`
	// Unseen is the reason why the machines are unknown.
	Unseen string `json:"machinesUnseen,omitempty"`
}

// machineReport is one bought machine of a Workspace.
type machineReport struct {
	Name         string      `json:"name"`
	Stage        string      `json:"stage"`
	InstanceType string      `json:"instanceType,omitempty"`
	Zone         string      `json:"zone,omitempty"`
	CapacityType string      `json:"capacityType,omitempty"`
	Node         string      `json:"node,omitempty"`
	Created      metav1.Time `json:"created"`
	Message      string      `json:"message,omitempty"`
	// Until is the number of the attempt that will replace this machine.
	Until int32 `json:"until,omitempty"`
}

// podReport is one pod of a Workspace.
type podReport struct {
	Name     string          `json:"name"`
	Member   int             `json:"member"`
	Stage    string          `json:"stage"`
	Ready    bool            `json:"ready"`
	Restarts int32           `json:"restarts"`
	Node     string          `json:"node,omitempty"`
	Created  metav1.Time     `json:"created"`
	Message  string          `json:"message,omitempty"`
	Weights  *fetch.Progress `json:"weights,omitempty"`
}

// summary returns the report from the Workspace alone, without machines and pods.
func summary(ws *v1beta1.Workspace) *report {
	out := &report{
		Namespace: ws.Namespace, Name: ws.Name, Model: modelOf(ws), Created: ws.CreationTimestamp, health: healthOf(ws),
		Plan: ws.Status.Plan, Attempts: ws.Status.Attempts, Startup: ws.Status.Startup, Endpoint: ws.Status.Endpoint,
	}
	if ws.Status.Performance != nil {
		out.Measured = ws.Status.Performance.Metrics
	}
	return out
}

// healthOf reads the conditions. Conditions of an earlier generation do not count as true.
func healthOf(ws *v1beta1.Workspace) health {
	out := health{State: ws.Status.State, Message: "the controller has not processed the Workspace yet: run kubectl berth doctor to check that the controller runs"}
	current := func(kind string) *metav1.Condition {
		condition := meta.FindStatusCondition(ws.Status.Conditions, kind)
		if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration < ws.Generation {
			return nil
		}
		return condition
	}
	if ready := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionReady); ready != nil {
		out.Reason, out.Message = ready.Reason, ready.Message
	}
	if !ws.DeletionTimestamp.IsZero() {
		return out
	}
	out.Ready = current(v1beta1.ConditionReady) != nil
	if stalled := current(v1beta1.ConditionStalled); stalled != nil {
		out.Stalled, out.Reason, out.Message = true, stalled.Reason, stalled.Message
	}
	return out
}

// modelOf returns the name of a Workspace's model.
func modelOf(ws *v1beta1.Workspace) string {
	switch {
	case ws.Inference != nil && ws.Inference.Preset != nil:
		return ws.Inference.Preset.Name
	case ws.Tuning != nil:
		return "tuning"
	default:
		return "own template"
	}
}

// addMachines adds the machines of the NodeClaims.
func (r *report) addMachines(claims []unstructured.Unstructured) {
	for i := range claims {
		machine := machineOf(&claims[i])
		machine.Until = r.successor(machine.Name)
		r.Machines = append(r.Machines, machine)
	}
	slices.SortFunc(r.Machines, func(a, b machineReport) int { return strings.Compare(a.Name, b.Name) })
}

// successor returns the number of the attempt that will replace a serving machine; 0 if there is none.
func (r *report) successor(machine string) int32 {
	isOpen := func(a v1beta1.Attempt) bool { return a.Reason == "" }
	serves := slices.IndexFunc(r.Attempts, func(a v1beta1.Attempt) bool { return isOpen(a) && slices.Contains(a.NodeClaims, machine) })
	if serves < 0 {
		return 0
	}
	later := r.Attempts[serves+1:]
	if next := slices.IndexFunc(later, isOpen); next >= 0 {
		return later[next].Number
	}
	return 0
}

// Stages of a machine, after Karpenter's.
const (
	machineAsked  = "Requested"
	machineReady  = "Ready"
	machineEnding = "Being released"
)

func machineOf(claim *unstructured.Unstructured) machineReport {
	var status struct {
		Conditions []metav1.Condition
	}
	conditions, _, _ := unstructured.NestedSlice(claim.Object, "status", "conditions") // absent if it has another type
	for _, entry := range conditions {
		fields, _ := entry.(map[string]any)
		text := func(name string) string { value, _ := fields[name].(string); return value }
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: text("type"), Status: metav1.ConditionStatus(text("status")), Message: text("message"),
		})
	}
	node, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName")
	labels := claim.GetLabels()
	out := machineReport{
		Name: claim.GetName(), Stage: machineAsked, Node: node, Created: claim.GetCreationTimestamp(),
		InstanceType: labels[corev1.LabelInstanceTypeStable], Zone: labels[corev1.LabelTopologyZone],
		CapacityType: labels["karpenter.sh/capacity-type"],
	}
	// The stages are in order. The machine waits for the first stage that it has not reached.
	for _, stage := range []struct{ condition, name string }{
		{"Launched", "Launched"}, {"Registered", "Registered"}, {"Initialized", machineReady},
	} {
		condition := meta.FindStatusCondition(status.Conditions, stage.condition)
		if condition == nil || condition.Status != metav1.ConditionTrue {
			if condition != nil {
				out.Message = condition.Message
			}
			break
		}
		out.Stage = stage.name
	}
	if claim.GetDeletionTimestamp() != nil {
		out.Stage, out.Message = machineEnding, ""
	}
	return out
}

// addPods adds the pods. The leader comes first.
func (r *report) addPods(pods []corev1.Pod) {
	for i := range pods {
		r.Pods = append(r.Pods, podOf(&pods[i]))
	}
	slices.SortFunc(r.Pods, func(a, b podReport) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), strings.Compare(a.Name, b.Name))
	})
}

// memberOf returns the pod's number in its Workspace. Number 0 is the leader.
func memberOf(pod *corev1.Pod) int {
	index := pod.Labels[appsv1.PodIndexLabel]
	if index == "" {
		index = pod.Name[strings.LastIndex(pod.Name, "-")+1:]
	}
	number, err := strconv.Atoi(index)
	if err != nil {
		return -1
	}
	return number
}

// The stages of a pod.
const (
	podWaits    = "waits for its machine"
	podHeld     = "being prepared by its node"
	podFetching = "fetching weights"
	podStarting = "starting the engine"
	podReady    = "ready"
	podFailed   = "failed"
	podEnding   = "ending"
)

func podOf(pod *corev1.Pod) podReport {
	out := podReport{Name: pod.Name, Member: memberOf(pod), Node: pod.Spec.NodeName, Created: pod.CreationTimestamp}
	out.Stage, out.Message = podStage(pod)
	out.Ready = isPodReady(pod) && pod.DeletionTimestamp == nil
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		out.Restarts += status.RestartCount
	}
	return out
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// podStage returns the stage of a pod, and the message of a stuck container.
func podStage(pod *corev1.Pod) (string, string) {
	switch {
	case pod.DeletionTimestamp != nil:
		return podEnding, ""
	case pod.Status.Phase == corev1.PodFailed:
		return podFailed, strings.TrimSpace(pod.Status.Reason + ": " + pod.Status.Message)
	case isPodReady(pod):
		return podReady, ""
	case pod.Spec.NodeName == "":
		return podWaits, ""
	}
	for _, status := range pod.Status.InitContainerStatuses {
		started := status.Started != nil && *status.Started
		if started || (status.State.Terminated != nil && status.State.Terminated.ExitCode == 0) {
			continue
		}
		if stage, message, found := containerStage(&status); found {
			return stage, message
		}
		if status.Name == workload.WeightsContainer(pod.Labels[v1beta1.LabelWorkspace]) {
			return podFetching, ""
		}
		return "runs " + status.Name, ""
	}
	for _, status := range pod.Status.ContainerStatuses {
		if stage, message, found := containerStage(&status); found {
			return stage, message
		}
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return podHeld, ""
	}
	return podStarting, ""
}

// containerStage returns why a container does not run, with a message; false if it runs.
func containerStage(status *corev1.ContainerStatus) (string, string, bool) {
	switch {
	case status.State.Running != nil:
		return "", "", false
	case status.State.Terminated != nil:
		return status.Name + " ended: " + status.State.Terminated.Reason, status.State.Terminated.Message, true
	case status.State.Waiting == nil, status.State.Waiting.Reason == "", status.State.Waiting.Reason == "PodInitializing":
		return podHeld, "", true
	case status.State.Waiting.Reason == "ContainerCreating":
		return "pulling the image of " + status.Name, "", true
	}
	message := status.State.Waiting.Message
	if last := status.LastTerminationState.Terminated; last != nil && last.Message != "" {
		message = last.Message
	}
	return status.Name + ": " + status.State.Waiting.Reason, message, true
}
