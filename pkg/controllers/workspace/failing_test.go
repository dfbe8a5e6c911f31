// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// ward returns a pass over a Workspace with one machine and one pod. words are the last words of its crashed engine.
func ward(t *testing.T, words string, change func(*scope.Scope)) *scope.Scope {
	t.Helper()
	known, err := diagnosis.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	ready := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "chat-0", UID: "pod"}, Spec: corev1.PodSpec{
		NodeName: "node-1", Containers: []corev1.Container{{Name: "engine"}},
	}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "engine", RestartCount: 7, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Message: words}},
	}}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "chat", UID: "set"}}
	set.Spec.Replicas, set.Status.Replicas = new(int32(1)), 1
	s := scope.New(&v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat"}})
	s.Signatures, s.StatefulSet, s.Pods = known, set, []corev1.Pod{pod}
	s.Revision = &revision.Revision{Name: "chat-1", Revision: render.Revision{Plan: planner.Plan{Nodes: 1}}}
	s.Attempts = []v1beta1.Attempt{{Number: 1, StartTime: ready, ReadyTime: &ready}}
	if change != nil {
		change(s)
	}
	return s
}

// TestMachineThatCannotServeIsReleased: only a machine whose pods fail permanently is released after the deadline.
func TestMachineThatCannotServeIsReleased(t *testing.T) {
	const hopeless = "error: invalid argument: --no-such-flag"
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	refuse := func(s *scope.Scope) {
		s.Pods, s.StatefulSet.Status.Replicas = nil, 0
		s.Warnings = []diagnosis.Warning{{About: "set", Reason: "FailedCreate", Message: "create Pod failed error: exceeded quota: gpus"}}
	}
	tests := []struct {
		reason   string
		words    string
		change   func(*scope.Scope)
		deadline time.Duration
		// later is a change before the deadline passes.
		later func(*scope.Scope)
		want  string
	}{
		{"an engine that refuses its arguments", hopeless, nil, 30 * time.Minute, nil, "have failed for 30m0s"},
		{"a pod that the cluster refuses", "", refuse, 30 * time.Minute, func(s *scope.Scope) { s.Warnings = nil }, "have failed for 30m0s"},
		{"the administrator sets no deadline", hopeless, nil, 0, nil, ""},
		{"words that may be about anything", "RuntimeError: it did not work", nil, 30 * time.Minute, nil, ""},
		{"the engine comes up after all", hopeless, nil, 30 * time.Minute, func(s *scope.Scope) {
			s.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, ""},
		{"its pods were changed just now", hopeless, nil, 30 * time.Minute, func(s *scope.Scope) { s.IsRolling = true }, ""},
		{"the refused pod is there after all", "", refuse, 30 * time.Minute, func(s *scope.Scope) {
			s.Warnings, s.StatefulSet.Status.Replicas = nil, 1
		}, ""},
		{"the machines of another attempt serve", hopeless, func(s *scope.Scope) { s.Surge.Serving = 9 }, 30 * time.Minute, nil, ""},
		{"its machine has not come", hopeless, func(s *scope.Scope) { s.Attempts[0].ReadyTime = nil }, 30 * time.Minute, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			clock := testclock.NewFakePassiveClock(noon)
			r := &Reconciler{Config: Config{Clock: clock, Acquisition: acquire.Settings{FailureDeadline: tt.deadline}}}
			s := ward(t, tt.words, tt.change)
			open := &s.Attempts[0]
			for _, at := range []time.Duration{0, 29*time.Minute + 59*time.Second} {
				clock.SetTime(noon.Add(at))
				if early := r.failed(s, open); early.Final {
					t.Fatalf("released after %s: %s", at, early.Message)
				}
				if err := r.noteFailing(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if tt.later != nil {
				tt.later(s)
			}
			clock.SetTime(noon.Add(30 * time.Minute))
			checkReleased(t, r.failed(s, open), tt.want)
		})
	}
}

// checkReleased compares a verdict with a part of its message; empty means that the attempt continues.
func checkReleased(t *testing.T, got refusal.Verdict, want string) {
	t.Helper()
	if want == "" {
		if got.Final {
			t.Errorf("released: %s", got.Message)
		}
		return
	}
	if !got.Final || got.Cause != refusal.CannotServe || got.Cooldown != 0 || !strings.Contains(got.Message, want) {
		t.Errorf("got %+v, want a message with %q", got, want)
	}
}

// TestMachinesOfExposedGroupAreReleased: a group whose engines must not start loses its machines after the deadline,
// unless the network is fixed by then. Until a person acts, these machines would only cost money.
func TestMachinesOfExposedGroupAreReleased(t *testing.T) {
	const half, deadline = 15 * time.Minute, 30 * time.Minute
	exposed := isolation.Finding{Outcome: isolation.Exposed, Message: "port 8090 was reached"}
	chat := isolation.Group{Namespace: "team-a", Name: "chat"}
	for _, tc := range []struct {
		reason string
		// exposed reports whether the guard has found the group exposed. change happens at half time.
		exposed bool
		change  func(*Reconciler, *scope.Scope)
		want    bool
	}{
		{"another group of its namespace is exposed", false, func(r *Reconciler, _ *scope.Scope) {
			r.Isolation.Expose(isolation.Group{Namespace: "team-a", Name: "other"}, exposed)
		}, false},
		{"a group of another namespace is exposed", false, func(r *Reconciler, _ *scope.Scope) {
			r.Isolation.Expose(isolation.Group{Namespace: "team-b", Name: "chat"}, exposed)
		}, false},
		{"nobody acts", true, nil, true},
		{"nothing is proven", false, nil, false},
		{"the network is mended", true, func(_ *Reconciler, s *scope.Scope) {
			for i := range s.Pods {
				s.Pods[i].Annotations[v1beta1.AnnotationIsolation] = v1beta1.IsolationFound
			}
		}, false},
		{"a controller that began just now looks first", true, func(r *Reconciler, _ *scope.Scope) {
			r.Isolation = isolation.NewGuard(isolation.RequireEnforcement, nil, r.Clock)
		}, false},
		{"one that began just now finds the same", true, func(r *Reconciler, s *scope.Scope) {
			r.Isolation = isolation.NewGuard(isolation.RequireEnforcement, nil, r.Clock)
			if err := r.noteFailing(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			r.Isolation.Expose(chat, exposed)
		}, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := ward(t, "", nil)
			s.Revision.Worker = &corev1.PodTemplateSpec{}
			s.Pods[0].Annotations = map[string]string{v1beta1.AnnotationIsolation: v1beta1.IsolationRequired}
			noon := s.Attempts[0].ReadyTime.Time
			clock := testclock.NewFakePassiveClock(noon)
			guard := isolation.NewGuard(isolation.RequireEnforcement, nil, clock)
			if tc.exposed {
				guard.Expose(chat, exposed)
			}
			r := &Reconciler{Config: Config{Clock: clock, Isolation: guard, Acquisition: acquire.Settings{FailureDeadline: deadline}}}
			for _, at := range []time.Duration{0, half, deadline} {
				clock.SetTime(noon.Add(at))
				got := r.failed(s, &s.Attempts[0])
				if isLast := at == deadline; got.Final != (isLast && tc.want) {
					t.Fatalf("after %s: released %v (%s), want %v", at, got.Final, got.Message, isLast && tc.want)
				}
				if !tc.exposed && s.Attempts[0].FailingTime != nil {
					t.Errorf("after %s: the deadline began for the finding of another group", at)
				}
				if got.Final && !strings.Contains(got.Message, "other pods can reach the groups of this namespace (port 8090 was reached)") {
					t.Errorf("the message does not name the evidence: %s", got.Message)
				}
				if err := r.noteFailing(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if at == half && tc.change != nil {
					tc.change(r, s)
				}
			}
		})
	}
}
