// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis explains in one sentence why a Workspace's inference server does not answer, and gives the remedy.
// Its input are the present pods and nodes. It also reports the stages of the server's start.
//
// It decides which of several symptoms a user should read first. The sentences are stable: they omit times, counters,
// back-offs and ports. A server that keeps failing in the same way has the same finding, so the controller writes it
// once. The known messages of engines are data in signatures.yaml. The package must not know clients or planning. It
// depends on the names of containers, and on nothing else of how pods are built.
package diagnosis

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"

	"github.com/modelberth/modelberth/pkg/wording"
)

// Input are the known facts about a Workspace's pods.
type Input struct {
	// Want is the desired number of pods.
	Want int
	// Pods of the Workspace, and the Nodes that they run on.
	Pods  []corev1.Pod
	Nodes []corev1.Node
	// Plan of the pods, for comparison with an engine's own figures; nil if unknown.
	Plan *planner.Plan
	// Signatures are the known messages of engines.
	Signatures Signatures
	// Warnings are the events about Silent objects. The first useful one counts.
	Warnings []Warning
}

// WaitsForMachines is the message while no machine can run a pod.
const WaitsForMachines = "the inference server waits for its machines: ResourceReady shows their progress"

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

// symptom returns the first symptom of any pod. If a pod ended because of another member of its group, its symptom
// comes after all possible causes.
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
