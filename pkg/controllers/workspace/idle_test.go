// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/workload"
)

func isReadyNow(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// TestMachineThatNeverServesIsReleased uses an error that matches no signature, so only the idle deadline ends the
// attempt.
func TestMachineThatNeverServesIsReleased(t *testing.T) {
	const unknown = "RuntimeError: it did not work"
	stored := func(status metav1.ConditionStatus) func(*scope.Scope) {
		return func(s *scope.Scope) {
			s.Before.Conditions = []metav1.Condition{{Type: v1beta1.ConditionInferenceReady, Status: status, Message: "stored words"}}
		}
	}
	fetches := func(began time.Duration) func(*scope.Scope) {
		return func(s *scope.Scope) {
			pod := &s.Pods[0]
			pod.Labels = map[string]string{v1beta1.LabelWorkspace: "chat"}
			pod.Status.ContainerStatuses = nil
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: workload.WeightsContainer("chat"), RestartCount: 9,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.Attempts[0].ReadyTime.Add(began))}},
			}}
		}
	}
	for _, tc := range []struct {
		reason string
		change func(*scope.Scope)
		want   string
	}{
		{"its engine crashes with unknown words", nil, "for 6h0m0s: "},
		{"the fault is in the pods alone", nil, "it did not work"},
		{"the stored condition has the words of an event", stored(metav1.ConditionFalse), "for 6h0m0s: stored words"},
		{"the stored condition is of better days", stored(metav1.ConditionTrue), "it did not work"},
		{"no pod was ever created", func(s *scope.Scope) { s.Pods = nil }, "has not created all pods yet"},
		{"a pod is ready", func(s *scope.Scope) { isReadyNow(&s.Pods[0]) }, ""},
		{"its fetch makes progress", fetches(time.Hour), ""},
		{"its fetch has begun lately", fetches(6*time.Hour - time.Minute), ""},
		{"its agent is held", func(s *scope.Scope) {
			fetches(time.Hour)(s)
			s.Pods[0].Annotations = map[string]string{v1beta1.AnnotationIsolation: v1beta1.IsolationRequired}
		}, "fetching weights"},
		{"it was edited just now", func(s *scope.Scope) { s.Workspace.Generation++ }, ""},
		{"it was edited before", func(s *scope.Scope) { s.Workspace.Generation, s.Workspace.Status.ObservedGeneration = 2, 2 }, "for 6h0m0s: "},
		{"it has answered", func(s *scope.Scope) { s.Attempts[0].AnsweredTime = s.Attempts[0].ReadyTime }, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := ward(t, unknown, nil)
			open := &s.Attempts[0]
			open.IdleTime = open.ReadyTime
			clock := testclock.NewFakePassiveClock(open.ReadyTime.Add(6 * time.Hour))
			r := &Reconciler{Config: Config{Clock: clock, Acquisition: acquire.Settings{IdleDeadline: 6 * time.Hour}}}
			if tc.change != nil {
				tc.change(s)
			}
			checkReleased(t, r.failed(s, open), tc.want)
		})
	}
}

// TestAnsweringPod checks that ready workers do not count while their leader crashes: nobody gets an answer.
func TestAnsweringPod(t *testing.T) {
	for _, tc := range []struct {
		reason string
		ready  []int
		want   bool
	}{
		{"no pod is ready", nil, false},
		{"the worker is ready", []int{1}, false},
		{"the leader is ready", []int{0}, true},
		{"both are ready", []int{0, 1}, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := ward(t, "", nil)
			s.Workers = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "chat-workers", UID: "workers"}}
			worker := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "chat-workers-1", OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(s.Workers, appsv1.SchemeGroupVersion.WithKind("StatefulSet")),
			}}}
			s.Pods = append(s.Pods, worker)
			for _, i := range tc.ready {
				isReadyNow(&s.Pods[i])
			}
			if got := s.HasAnsweringPod(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestObserveMarksAnswer: the first step of a pass marks the attempt. Later steps may fail in each pass, and the answer
// would be forgotten.
func TestObserveMarksAnswer(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		isReady bool
		want    *metav1.Time
	}{
		{"the pod is ready", true, &now},
		{"the pod is not", false, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ws := workspaceObject()
			set := pinnedSet(1)
			set.Namespace, set.Name, set.UID = "team-a", "chat", "set-1"
			set.Labels = map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ws, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: "chat-0", Labels: map[string]string{v1beta1.LabelWorkspace: "chat"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
			}}
			if tc.isReady {
				isReadyNow(pod)
			}
			kube := server(t, set, pod)
			r := New(Config{
				Client: kube, Live: kube, Provisioner: live{machines: []capacity.Machine{machine()}}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			s := scope.New(ws)
			s.Attempts = []v1beta1.Attempt{{Number: 1, NodeClaims: []string{"chat-aaaa"}, ReadyTime: &now}}
			if err := r.observer.observe(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, s.Attempts[0].AnsweredTime); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestFetchProof checks the time by which a running fetch has proven its progress.
func TestFetchProof(t *testing.T) {
	s := ward(t, "", nil)
	if proof := s.PodState(now.Time).FetchProof; !proof.IsZero() {
		t.Errorf("nothing is being fetched, and the proof is due at %s", proof)
	}
	pod := &s.Pods[0]
	pod.Labels = map[string]string{v1beta1.LabelWorkspace: "chat"}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: workload.WeightsContainer("chat"), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}
	if got, want := s.PodState(now.Time).FetchProof, now.Add(22*time.Minute); !got.Equal(want) {
		t.Errorf("the proof is due at %s, want %s", got, want)
	}
}
