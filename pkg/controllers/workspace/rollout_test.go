// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

func stored(name string, number int64, hash string) appsv1.ControllerRevision {
	return appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1beta1.AnnotationHash: hash}}, Revision: number,
	}
}

// TestWayBack: the message names the way back if the model fails after an edit.
func TestWayBack(t *testing.T) {
	const current = "chat-0123456789"
	failing := corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodRunning,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "chat", RestartCount: 3,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
		}},
	}}
	failing.Name = "chat-0"
	starting := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
	starting.Name = "chat-0"
	for _, tc := range []struct {
		reason, served string
		pod            corev1.Pod
		revisions      []appsv1.ControllerRevision
		want           bool
	}{
		{"another spec answered", "chat-old", failing, []appsv1.ControllerRevision{stored("chat-old", 4, "a"), stored(current, 5, "b")}, true},
		{"what answered is a later revision", "chat-old", failing, []appsv1.ControllerRevision{stored(current, 4, "b"), stored("chat-old", 5, "a")}, true},
		{"the same spec answered on other machines", "chat-old", failing, []appsv1.ControllerRevision{stored("chat-old", 4, "b"), stored(current, 5, "b")}, false},
		{"this revision answered", current, failing, []appsv1.ControllerRevision{stored("chat-old", 4, "a"), stored(current, 5, "b")}, false},
		{"nothing answered", "", failing, []appsv1.ControllerRevision{stored("chat-old", 4, "a"), stored(current, 5, "b")}, false},
		{"what answered is gone", "chat-old", failing, []appsv1.ControllerRevision{stored(current, 5, "b")}, false},
		{"it only takes its time", "chat-old", starting, []appsv1.ControllerRevision{stored("chat-old", 4, "a"), stored(current, 5, "b")}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := scope.New(workspaceObject())
			s.Revision, s.Revisions.Objects, s.StatefulSet, s.Pods = accepted(1), tc.revisions, readySet(), []corev1.Pod{tc.pod}
			s.Machines = []capacity.Machine{machine()}
			s.Workspace.Status.LatestReadyRevision = tc.served
			status, _ := s.Status(nil, now)
			got := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionInferenceReady).Message
			if hint := "kubectl berth rollback chat -n team-a --to-revision"; strings.Contains(got, hint) != tc.want {
				t.Errorf("the condition says %q, want %q in it: %t", got, hint, tc.want)
			}
			if status.LatestReadyRevision != tc.served {
				t.Errorf("what answered last is %q now", status.LatestReadyRevision)
			}
		})
	}
}
