// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// IsProgress reports whether two statuses differ only in the progress of machines and pods. Such changes are not
// urgent. Plans, machines, answers and problems are more than progress.
func IsProgress(before, after *v1beta1.WorkspaceStatus) bool {
	return equality.Semantic.DeepEqual(withoutProgress(before), withoutProgress(after))
}

// AreMachinesUsable reports whether two statuses differ only in progress and in machines that have become usable. The
// model itself answers some time later.
func AreMachinesUsable(before, after *v1beta1.WorkspaceStatus) bool {
	if meta.IsStatusConditionTrue(before.Conditions, v1beta1.ConditionResourceReady) ||
		!meta.IsStatusConditionTrue(after.Conditions, v1beta1.ConditionResourceReady) {
		return false
	}
	return equality.Semantic.DeepEqual(withoutMachines(before), withoutMachines(after))
}

// AnswersEarly reports whether two statuses differ only in progress, in machines that have become usable, and in an engine
// that answers before the Workspace is Ready: its machines do not count as usable yet, or its Service has no endpoint.
// Both usually follow within a second or two. events is the number of events that report the same.
func AnswersEarly(before, after *v1beta1.WorkspaceStatus) (events int, isEarly bool) {
	begins := func(kind string) bool {
		return !meta.IsStatusConditionTrue(before.Conditions, kind) && meta.IsStatusConditionTrue(after.Conditions, kind)
	}
	if !begins(v1beta1.ConditionInferenceReady) || meta.IsStatusConditionTrue(after.Conditions, v1beta1.ConditionReady) {
		return 0, false
	}
	if !begins(v1beta1.ConditionResourceReady) {
		return 1, equality.Semantic.DeepEqual(withoutEngine(before), withoutEngine(after))
	}
	return 2, equality.Semantic.DeepEqual(withoutMachines(withoutEngine(before)), withoutMachines(withoutEngine(after)))
}

// withoutEngine returns a copy of a status without progress, and without whether the engine answers.
func withoutEngine(status *v1beta1.WorkspaceStatus) *v1beta1.WorkspaceStatus {
	out := withoutProgress(status)
	out.Endpoint = nil
	for i := range out.Attempts {
		out.Attempts[i].AnsweredTime = nil
	}
	meta.RemoveStatusCondition(&out.Conditions, v1beta1.ConditionInferenceReady)
	return out
}

// withoutMachines returns a copy of a status without progress, and without whether machines are usable.
func withoutMachines(status *v1beta1.WorkspaceStatus) *v1beta1.WorkspaceStatus {
	out := withoutProgress(status)
	for i := range out.Attempts {
		out.Attempts[i].ReadyTime = nil
	}
	meta.RemoveStatusCondition(&out.Conditions, v1beta1.ConditionResourceReady)
	return out
}

// withoutProgress returns a copy of a status without the stages of the startup, of machines and of pods, and without
// messages.
func withoutProgress(status *v1beta1.WorkspaceStatus) *v1beta1.WorkspaceStatus {
	out := status.DeepCopy()
	out.Startup, out.WorkerNodes = nil, nil
	for i := range out.Attempts {
		out.Attempts[i].FailingTime, out.Attempts[i].IdleTime = nil, nil // their deadlines are minutes away
		for j := range out.Attempts[i].Claims {
			out.Attempts[i].Claims[j].Stage = ""
		}
	}
	for i := range out.Conditions {
		condition := &out.Conditions[i]
		condition.Message = ""
		switch condition.Type {
		case v1beta1.ConditionNodeClaimReady, v1beta1.ConditionNodesReady: // ResourceReady summarizes them
			*condition = metav1.Condition{Type: condition.Type, ObservedGeneration: condition.ObservedGeneration}
		case v1beta1.ConditionInferenceReady:
			if condition.Reason == v1beta1.ReasonUnschedulable { // usually the scheduler has not seen the node yet
				condition.Reason = v1beta1.ReasonInferencePending
			}
		case v1beta1.ConditionResourceReady, v1beta1.ConditionReady: // their reasons repeat other conditions
			if condition.Status == metav1.ConditionFalse {
				condition.Reason = ""
			}
		}
	}
	return out
}
