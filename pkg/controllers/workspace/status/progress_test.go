// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
)

func TestIsProgress(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	of := func(change func(*v1beta1.WorkspaceStatus)) *v1beta1.WorkspaceStatus {
		out := &v1beta1.WorkspaceStatus{
			State: v1beta1.StatePending,
			Conditions: []metav1.Condition{
				condition(v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "NodeClaimNotReady", "being launched"),
				condition(v1beta1.ConditionResourceReady, metav1.ConditionFalse, "NodeClaimNotReady", "being launched"),
				condition(v1beta1.ConditionInferenceReady, metav1.ConditionFalse, "WorkspaceInferenceStatusPending", "waits"),
			},
			Attempts: []v1beta1.Attempt{{Number: 1, Claims: []v1beta1.AttemptClaim{{Name: "a", UID: "u"}}}},
		}
		if change != nil {
			change(out)
		}
		return out
	}
	for _, tc := range []struct {
		reason string
		change func(*v1beta1.WorkspaceStatus)
		want   bool
	}{
		{"a message", func(s *v1beta1.WorkspaceStatus) { s.Conditions[2].Message = "pulls" }, true},
		{"the stage that the provisioner is at", func(s *v1beta1.WorkspaceStatus) { s.Conditions[0].Reason = "NodeNotFound" }, true},
		{"the same in a sum", func(s *v1beta1.WorkspaceStatus) { s.Conditions[1].Reason = "NodeNotFound" }, true},
		{"a part of a sum that does not hold yet", func(s *v1beta1.WorkspaceStatus) { s.Conditions[0].Status = metav1.ConditionTrue }, true},
		{"the stage of a machine", func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].Claims[0].Stage = "Launched" }, true},
		{"a stage of the start", func(s *v1beta1.WorkspaceStatus) { s.Startup = []v1beta1.StartupStage{{Stage: "Planned"}} }, true},
		{"a node's name", func(s *v1beta1.WorkspaceStatus) { s.WorkerNodes = []string{"n"} }, true},
		{"pods for which no node is ready", func(s *v1beta1.WorkspaceStatus) { s.Conditions[2].Reason = v1beta1.ReasonUnschedulable }, true},
		{"a model that answers", func(s *v1beta1.WorkspaceStatus) {
			s.Conditions[2].Status, s.Conditions[2].Reason = metav1.ConditionTrue, v1beta1.ReasonInferenceSuccess
			s.Conditions = append(s.Conditions, condition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing, "answers"))
		}, false},
		{"an engine that answers", func(s *v1beta1.WorkspaceStatus) { s.Conditions[2].Status = metav1.ConditionTrue }, false},
		{"an endpoint", func(s *v1beta1.WorkspaceStatus) { s.Endpoint = &v1beta1.Endpoint{} }, false},
		{"a sum holds", func(s *v1beta1.WorkspaceStatus) { s.Conditions[1].Status = metav1.ConditionTrue }, false},
		{"something is wrong", func(s *v1beta1.WorkspaceStatus) { s.Conditions[2].Reason = "ImagePullError" }, false},
		{"a condition more", func(s *v1beta1.WorkspaceStatus) {
			s.Conditions = append(s.Conditions, condition(v1beta1.ConditionStalled, metav1.ConditionTrue, "Misconfigured", "m"))
		}, false},
		{"words about a launch", func(s *v1beta1.WorkspaceStatus) {
			s.Attempts[0].Claims[0].Heard = []v1beta1.AttemptWords{{Reason: "LaunchFailed"}}
		}, false},
		{"another machine", func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].Claims[0].UID = "v" }, false},
		{"the start of a failure", func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].FailingTime = &metav1.Time{} }, true},
		{"the end of an attempt", func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].Reason = "Quota" }, false},
		{"the state", func(s *v1beta1.WorkspaceStatus) { s.State = v1beta1.StateReady }, false},
		{"the plan", func(s *v1beta1.WorkspaceStatus) { s.Plan = &v1beta1.PlanStatus{} }, false},
		{"the spec that it is about", func(s *v1beta1.WorkspaceStatus) { s.Conditions[0].ObservedGeneration = 2 }, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := status.IsProgress(of(nil), of(tc.change)); got != tc.want {
				t.Errorf("mere progress: %v, want %v", got, tc.want)
			}
		})
	}
}

// pending returns the status of a first attempt with false conditions.
func pending(reason string, kinds ...string) *v1beta1.WorkspaceStatus {
	out := &v1beta1.WorkspaceStatus{State: v1beta1.StatePending, Attempts: []v1beta1.Attempt{{Number: 1}}}
	for _, kind := range kinds {
		out.Conditions = append(out.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason})
	}
	return out
}

func TestAreMachinesUsable(t *testing.T) {
	waiting := func() *v1beta1.WorkspaceStatus {
		return pending("NodeClaimNotReady", v1beta1.ConditionNodeClaimReady, v1beta1.ConditionResourceReady, v1beta1.ConditionReady)
	}
	usable := func() *v1beta1.WorkspaceStatus {
		out := waiting()
		out.Attempts[0].ReadyTime = &metav1.Time{}
		out.Conditions[0].Status, out.Conditions[0].Reason = metav1.ConditionTrue, "NodeClaimsReady"
		out.Conditions[1].Status, out.Conditions[1].Reason = metav1.ConditionTrue, "Success"
		out.Conditions[2].Reason = "Pending"
		return out
	}
	changed := func(change func(*v1beta1.WorkspaceStatus)) *v1beta1.WorkspaceStatus {
		out := usable()
		change(out)
		return out
	}
	for _, tc := range []struct {
		reason        string
		before, after *v1beta1.WorkspaceStatus
		want          bool
	}{
		{"they become usable", waiting(), usable(), true},
		{"they are not yet", waiting(), waiting(), false},
		{"they have been before", usable(), usable(), false},
		{"they are lost", usable(), waiting(), false},
		{"the model answers, too", waiting(), changed(func(s *v1beta1.WorkspaceStatus) { s.Conditions[2].Status = metav1.ConditionTrue }), false},
		{"a stage of the start, too", waiting(), changed(func(s *v1beta1.WorkspaceStatus) { s.WorkerNodes = []string{"n"} }), true},
		{"the attempt ends", waiting(), changed(func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].Reason = "Quota" }), false},
		{"the plan changes", waiting(), changed(func(s *v1beta1.WorkspaceStatus) { s.Plan = &v1beta1.PlanStatus{} }), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := status.AreMachinesUsable(tc.before, tc.after); got != tc.want {
				t.Errorf("only usable machines: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAnswersEarly(t *testing.T) {
	starting := func() *v1beta1.WorkspaceStatus {
		out := pending("KnownEphemeralTaintsExist", v1beta1.ConditionNodeClaimReady, v1beta1.ConditionResourceReady,
			v1beta1.ConditionInferenceReady, v1beta1.ConditionReady)
		out.Conditions[2].Reason = "WorkspaceInferenceStatusPending"
		return out
	}
	answering := func(change func(*v1beta1.WorkspaceStatus)) *v1beta1.WorkspaceStatus {
		out := starting()
		out.Conditions[2].Status, out.Conditions[2].Reason = metav1.ConditionTrue, "Success"
		out.Endpoint = &v1beta1.Endpoint{URL: "http://chat"}
		if change != nil {
			change(out)
		}
		return out
	}
	usable := func(s *v1beta1.WorkspaceStatus) {
		s.Conditions[1].Status = metav1.ConditionTrue
		s.Attempts[0].ReadyTime, s.Attempts[0].AnsweredTime = &metav1.Time{Time: time.Unix(9, 0)}, &metav1.Time{Time: time.Unix(9, 0)}
	}
	onUsable := starting()
	usable(onUsable)
	onUsable.Attempts[0].AnsweredTime = nil
	const no = -1
	for _, tc := range []struct {
		reason        string
		before, after *v1beta1.WorkspaceStatus
		events        int
	}{
		{"it answers", starting(), answering(nil), 1},
		{"a stage of the start, too", starting(), answering(func(s *v1beta1.WorkspaceStatus) { s.WorkerNodes = []string{"n"} }), 1},
		{"it does not answer yet", starting(), starting(), no},
		{"it has answered before", answering(nil), answering(nil), no},
		{"it answers no more", answering(nil), starting(), no},
		{"the machines were usable, and the Service has no endpoint", onUsable, answering(usable), 1},
		{"the machines are usable, too, and the Service has no endpoint", starting(), answering(usable), 2},
		{"the machines are usable, too, and the Workspace is Ready", starting(), answering(func(s *v1beta1.WorkspaceStatus) {
			usable(s)
			s.Conditions[3].Status = metav1.ConditionTrue
		}), no},
		{"the Workspace is Ready on the machines of before", starting(), answering(func(s *v1beta1.WorkspaceStatus) {
			s.Conditions[3].Status = metav1.ConditionTrue
		}), no},
		{"the attempt ends", starting(), answering(func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].Reason = "Quota" }), no},
		{"the plan changes", starting(), answering(func(s *v1beta1.WorkspaceStatus) { s.Plan = &v1beta1.PlanStatus{} }), no},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			events, isEarly := status.AnswersEarly(tc.before, tc.after)
			if isEarly != (tc.events != no) || isEarly && events != tc.events {
				t.Errorf("only an early answer: %v, with %d events; want %d", isEarly, events, tc.events)
			}
		})
	}
}
