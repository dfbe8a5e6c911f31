// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/progress"
)

// kaitos returns a status as KAITO's controller leaves it.
func kaitos() *v1beta1.WorkspaceStatus {
	out := &v1beta1.WorkspaceStatus{State: v1beta1.StateReady, TargetNodeCount: 2, WorkerNodes: []string{"node-1", "node-2"}}
	for _, kind := range []string{v1beta1.ConditionResourceReady, v1beta1.ConditionInferenceReady, v1beta1.ConditionWorkspaceSucceeded} {
		out.Conditions = append(out.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Done", Message: "KAITO's words", LastTransitionTime: metav1.NewTime(now.Add(-1)),
		})
	}
	return out
}

// TestFrozenKeepsWhatIsTrue: a frozen status keeps KAITO's conditions while they are true, reports the takeover once,
// and restores KAITO's part after a reverted edit.
func TestFrozenKeepsWhatIsTrue(t *testing.T) {
	facts := serving()
	facts.Workspace.IsKAITOs, facts.Workspace.Frozen = true, &status.Frozen{Answers: true, Message: "2 of 2 pods are ready"}
	left := &progress.StalledError{Reason: v1beta1.ReasonServedByKAITO, Message: "left alone"}
	before, _ := status.Kept(kaitos(), facts.Workspace.Generation, left, now)
	facts.Stored = &before
	frozen, events := status.Compute(facts, nil, now)
	if len(events) == 0 || frozen.State != v1beta1.StateReady || frozen.Plan != nil {
		t.Errorf("events %v, state %q, plan %v; want events, Ready, none", events, frozen.State, frozen.Plan)
	}
	for kind, want := range map[string]string{
		v1beta1.ConditionInferenceReady: "KAITO's words", v1beta1.ConditionWorkspaceSucceeded: "KAITO's words",
		v1beta1.ConditionResourceReady: "KAITO's words", v1beta1.ConditionReady: "2 of 2 pods are ready",
	} {
		if got := meta.FindStatusCondition(frozen.Conditions, kind); got == nil || got.Status != metav1.ConditionTrue || got.Message != want {
			t.Errorf("%s is %+v, want True with %q", kind, got, want)
		}
	}
	if stalled := meta.FindStatusCondition(frozen.Conditions, v1beta1.ConditionStalled); stalled != nil {
		t.Errorf("it is stalled: %+v", stalled)
	}
	facts.Stored = &frozen
	again, events := status.Compute(facts, nil, metav1.NewTime(now.Add(1)))
	if diff := cmp.Diff(frozen, again); diff != "" || len(events) > 0 {
		t.Errorf("events %v, and the second status differs (-first +second):\n%s", events, diff)
	}
	facts.Workspace.Frozen = &status.Frozen{Message: "1 of 2 pods are ready"}
	failing, _ := status.Compute(facts, nil, now)
	inference := meta.FindStatusCondition(failing.Conditions, v1beta1.ConditionInferenceReady)
	if failing.State != v1beta1.StateNotReady || inference.Status != metav1.ConditionFalse || inference.Message != "1 of 2 pods are ready" {
		t.Errorf("with failing pods: state %q, %+v", failing.State, inference)
	}
	edited := *frozen.DeepCopy()
	edited.Plan, edited.TargetNodeCount, edited.Startup = &v1beta1.PlanStatus{Revision: "chat-1"}, 1, []v1beta1.StartupStage{{}}
	for _, kind := range []string{v1beta1.ConditionResourceReady, v1beta1.ConditionNodesReady, v1beta1.ConditionNodeClaimReady} {
		meta.SetStatusCondition(&edited.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Launching"})
	}
	facts.Stored, facts.Workspace.Frozen = &edited, &status.Frozen{Answers: true, Message: "2 of 2 pods are ready", Nodes: 2}
	reverted, _ := status.Compute(facts, nil, now)
	if reverted.Plan != nil || reverted.TargetNodeCount != 2 || reverted.WorkerNodes != nil || reverted.Startup != nil {
		t.Errorf("after a reverted edit: plan %v, %d nodes, on %v, startup %v; want 2 nodes alone",
			reverted.Plan, reverted.TargetNodeCount, reverted.WorkerNodes, reverted.Startup)
	}
	for _, kind := range []string{v1beta1.ConditionResourceReady, v1beta1.ConditionNodesReady, v1beta1.ConditionNodeClaimReady} {
		if left := meta.FindStatusCondition(reverted.Conditions, kind); left != nil {
			t.Errorf("after a reverted edit, its condition is left: %+v", left)
		}
	}
	undone, _ := status.Kept(&frozen, facts.Workspace.Generation, left, now)
	byType := func(s *v1beta1.WorkspaceStatus) map[string]metav1.Condition {
		out := map[string]metav1.Condition{}
		for _, each := range s.Conditions {
			each.ObservedGeneration = 0
			out[each.Type] = each
		}
		return out
	}
	if diff := cmp.Diff(byType(&before), byType(&undone)); diff != "" {
		t.Errorf("conditions after undo (-before +after):\n%s", diff)
	}
}

// TestFrozenForgetsAnEditWithoutAPlan: the status loses the traces of an edit that was reverted before it had a plan.
// It keeps KAITO's values that no edit has overwritten.
func TestFrozenForgetsAnEditWithoutAPlan(t *testing.T) {
	for _, test := range []struct {
		reason  string
		planned string
		forgets bool
	}{
		{"the edit was refused", v1beta1.ReasonUnknownPreset, true},
		{"the edit was being planned", v1beta1.ReasonProgressing, true},
		{"nobody has agreed yet", v1beta1.ReasonServedByKAITO, false},
		{"it was frozen before", v1beta1.ReasonFrozen, false},
		{"KAITO's controller alone has written", "", false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			facts, stored := serving(), kaitos()
			facts.Workspace.IsKAITOs, facts.Workspace.Frozen = true, &status.Frozen{Answers: true, Message: "2 of 2 pods are ready", Nodes: 2}
			if test.planned != "" {
				meta.SetStatusCondition(&stored.Conditions, metav1.Condition{Type: v1beta1.ConditionPlanned, Status: metav1.ConditionFalse, Reason: test.planned})
			}
			facts.Stored = stored
			after, _ := status.Compute(facts, nil, now)
			resource := meta.FindStatusCondition(after.Conditions, v1beta1.ConditionResourceReady)
			if (resource == nil) != test.forgets || (after.WorkerNodes == nil) != test.forgets || after.TargetNodeCount != 2 {
				t.Errorf("ResourceReady %+v, nodes %v, wanted %d; forgets them: %v", resource, after.WorkerNodes, after.TargetNodeCount, test.forgets)
			}
		})
	}
}

// TestSuspendedBesideKAITOsPods: the message warns of KAITO's pods, which a suspension does not stop.
func TestSuspendedBesideKAITOsPods(t *testing.T) {
	for _, hasPods := range []bool{true, false} {
		facts := serving()
		facts.Workspace.IsSuspended, facts.Workspace.HasKAITOsPods = true, hasPods
		after, _ := status.Compute(facts, nil, now)
		ready := meta.FindStatusCondition(after.Conditions, v1beta1.ConditionReady)
		says := strings.Contains(ready.Message, "pods and machines of KAITO's controller still run and cost money") &&
			strings.Contains(ready.Message, "delete the Workspace") && strings.Contains(ready.Message, "revert the edit")
		if ready.Reason != v1beta1.ReasonSuspended || says != hasPods {
			t.Errorf("with KAITO's pods: %v, Ready is %+v", hasPods, ready)
		}
	}
}
