// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// IsProgress reports whether two statuses differ only in the progress of machines and pods. Nobody waits for such
// news: plans, machines, answers and problems are no mere progress.
func IsProgress(before, after *v1beta1.WorkspaceStatus) bool {
	return equality.Semantic.DeepEqual(withoutProgress(before), withoutProgress(after))
}

// withoutProgress drops from a status the stages of the startup, of machines and of pods, and all messages.
func withoutProgress(status *v1beta1.WorkspaceStatus) *v1beta1.WorkspaceStatus {
	out := status.DeepCopy()
	out.Startup, out.WorkerNodes = nil, nil
	for i := range out.Attempts {
		out.Attempts[i].FailingTime = nil // the deadline of a failure is minutes away
		for j := range out.Attempts[i].Claims {
			out.Attempts[i].Claims[j].Stage = ""
		}
	}
	for i := range out.Conditions {
		condition := &out.Conditions[i]
		condition.Message = ""
		switch condition.Type {
		case v1beta1.ConditionNodeClaimReady, v1beta1.ConditionNodesReady: // ResourceReady sums them up
			*condition = metav1.Condition{Type: condition.Type, ObservedGeneration: condition.ObservedGeneration}
		case v1beta1.ConditionInferenceReady:
			if condition.Reason == v1beta1.ReasonUnschedulable { // most often the scheduler has not seen the node yet
				condition.Reason = v1beta1.ReasonInferencePending
			}
		case v1beta1.ConditionResourceReady, v1beta1.ConditionReady: // their reasons are those of other conditions
			if condition.Status == metav1.ConditionFalse {
				condition.Reason = ""
			}
		}
	}
	return out
}
