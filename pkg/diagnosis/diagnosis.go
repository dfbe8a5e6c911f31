// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis explains in one sentence why a Workspace's inference server does not answer, with the way out,
// from the present pods and nodes. It also reports the stages of its start.
//
// It decides which of several symptoms a user should read first. The sentences are stable: they leave out
// everything that changes by itself (times, counters, back-offs, ports). A server that keeps failing in the same
// way has one finding, and nothing is written twice. The known messages of engines are data: words.yaml. It must
// not know clients, how plans are made, or how pods are built beyond the names of their containers.
package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"

	"github.com/modelberth/modelberth/pkg/wording"
)

// Input are the known facts about a Workspace's pods.
type Input struct {
	// Want is how many pods there should be.
	Want int
	// Pods of the Workspace, and Nodes with them.
	Pods  []corev1.Pod
	Nodes []corev1.Node
	// Plan of the pods, for comparison with an engine's own figures; nil if it is unknown.
	Plan *planner.Plan
	// Words are the known messages of engines.
	Words Words
	// Warnings are the events about Silent objects. The first useful one counts.
	Warnings []Warning
}

// Finding is the state of the inference server, as the condition InferenceReady holds it.
type Finding struct {
	Ready bool
	// Reason is one of those of InferenceReady.
	Reason string
	// Message is a sentence of at most 1024 characters with the next step.
	Message string
}

// WaitsForMachines is the message while no machine can run a pod.
const WaitsForMachines = "the inference server waits for its machines: ResourceReady shows their progress"

// maxMessage is the limit of our conditions' messages.
const maxMessage = 1024

// check looks for one symptom of a pod.
type check func(*Input, *corev1.Pod) (Finding, bool)

// Inference returns the finding about the inference server.
func Inference(in Input) Finding {
	in.Pods = living(in.Pods)
	if in.Want > 0 && ready(in.Pods) >= in.Want {
		return Finding{Ready: true, Reason: v1beta1.ReasonInferenceSuccess, Message: "the inference server answers"}
	}
	finding := symptom(&in)
	finding.Message = wording.Clip(finding.Message, maxMessage)
	return finding
}

// symptom is the first symptom of any pod. If a member of a group ended because of another one, its symptom comes
// after all possible causes.
func symptom(in *Input) Finding {
	checks := []check{
		unschedulable, imagePull, weights, outOfMemory, startupTimeout, crash, startError, memberLost, evicted, heldUp,
	}
	for _, check := range checks {
		for i := range in.Pods {
			if finding, found := check(in, &in.Pods[i]); found {
				return finding
			}
		}
	}
	if finding, found := refusedPod(in); found {
		return finding
	}
	if finding, found := pressure(in.Pods, in.Nodes); found {
		return finding
	}
	return progress(in.Pods, in.Nodes)
}

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

func pending(format string, args ...any) Finding {
	return finding(v1beta1.ReasonInferencePending, format, args...)
}

func finding(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
