// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Frozen describes a Workspace that was taken over from KAITO's controller and runs on as KAITO left it.
type Frozen struct {
	// Answers reports whether its pods are ready. Message describes the pods, and the effect of an edit.
	Answers bool
	Message string
	// Nodes is the number of its nodes.
	Nodes int
}

// unplanned is the message of the condition Planned for a frozen Workspace.
const unplanned = "taken over from KAITO's controller unchanged: the first edit of resource or inference makes a plan"

// status returns the status after a pass, and the events of the changes. It keeps a condition of KAITO's controller
// while that condition's status is still true.
func (f *Frozen) status(stored *v1beta1.WorkspaceStatus, generation int64, now metav1.Time) (v1beta1.WorkspaceStatus, []Event) {
	out := *stored.DeepCopy()
	out.ObservedGeneration = generation
	ready := no(v1beta1.ConditionReady, v1beta1.ReasonInferencePending, f.Message)
	inference := no(v1beta1.ConditionInferenceReady, v1beta1.ReasonInferencePending, f.Message)
	succeeded := no(v1beta1.ConditionWorkspaceSucceeded, v1beta1.ReasonWorkspacePending, f.Message)
	if f.Answers {
		ready = yes(v1beta1.ConditionReady, v1beta1.ReasonFrozen, f.Message)
		inference = yes(v1beta1.ConditionInferenceReady, v1beta1.ReasonInferenceSuccess, f.Message)
		succeeded = yes(v1beta1.ConditionWorkspaceSucceeded, v1beta1.ReasonWorkspaceSucceeded, f.Message)
	}
	setConditions(&out, []metav1.Condition{
		yes(v1beta1.ConditionPlanned, v1beta1.ReasonFrozen, unplanned), ready, absent(v1beta1.ConditionStalled),
		unchanged(stored, inference), unchanged(stored, succeeded),
	}, now)
	if out.Plan != nil || wasEdited(stored) {
		f.forgetEdit(&out)
	}
	out.State = nextState(stored.State, f.Answers)
	events := changes(stored, &out)
	return out, events
}

// wasEdited reports whether the stored status describes an edit, even an edit that never got a plan.
func wasEdited(stored *v1beta1.WorkspaceStatus) bool {
	planned := meta.FindStatusCondition(stored.Conditions, v1beta1.ConditionPlanned)
	return planned != nil && planned.Reason != v1beta1.ReasonFrozen && planned.Reason != v1beta1.ReasonServedByKAITO
}

// forgetEdit removes the traces of a reverted edit, because none of them describes the serving machines. KAITO's
// controller reads the node count if it takes the Workspace back.
func (f *Frozen) forgetEdit(out *v1beta1.WorkspaceStatus) {
	out.Plan, out.TargetNodeCount, out.WorkerNodes, out.Startup = nil, int32(f.Nodes), nil, nil
	for _, kind := range []string{v1beta1.ConditionResourceReady, v1beta1.ConditionNodesReady, v1beta1.ConditionNodeClaimReady} {
		meta.RemoveStatusCondition(&out.Conditions, kind)
	}
}

// unchanged returns the stored condition if it has the same status, or else the new one.
func unchanged(stored *v1beta1.WorkspaceStatus, condition metav1.Condition) metav1.Condition {
	if found := meta.FindStatusCondition(stored.Conditions, condition.Type); found != nil && found.Status == condition.Status {
		return *found
	}
	return condition
}
