// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// inference returns the condition InferenceReady.
func (p pass) inference() metav1.Condition {
	pending := func(message string) metav1.Condition {
		return no(v1beta1.ConditionInferenceReady, v1beta1.ReasonInferencePending, message)
	}
	seen := p.Pods.Diagnosis
	switch {
	case p.Plan.Plan == nil || p.Workspace.IsSuspended:
		return pending("the inference server has not started")
	case !p.Pods.HasSet:
		return pending(diagnosis.WaitsForMachines)
	case p.Pods.Replacement != "":
		return no(v1beta1.ConditionInferenceReady, v1beta1.ReasonGroupReplaced, p.Pods.Replacement)
	case seen.Ready && !p.Pods.AreCurrent:
		return pending("replacing the pods of the previous revision")
	case seen.Ready:
		return yes(v1beta1.ConditionInferenceReady, seen.Reason, seen.Message)
	case p.areMachinesComing():
		return pending(diagnosis.WaitsForMachines)
	}
	if p.Pods.RestartReason != "" {
		seen.Message += "; it restarts because " + p.Pods.RestartReason
	}
	if seen.Reason != v1beta1.ReasonInferencePending {
		seen.Message += p.Pods.Rollback
	}
	return no(v1beta1.ConditionInferenceReady, seen.Reason, seen.Message)
}

// areMachinesComing reports whether no pod has a node, and the machines of the open attempt were not yet usable in the
// stored status. Then the scheduler's messages about the pods concern the previous nodes.
func (p pass) areMachinesComing() bool {
	if p.Plan.isOnNodes() || p.Pods.ArePlaced || p.Attempts.Open == 0 {
		return false
	}
	return !slices.ContainsFunc(p.Stored.Attempts, func(a v1beta1.Attempt) bool {
		return a.Number == p.Attempts.Open && a.ReadyTime != nil
	})
}
