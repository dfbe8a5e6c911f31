// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/workload"
)

// TestFetchingSince finds the oldest running agent that does not have all files yet.
func TestFetchingSince(t *testing.T) {
	noon := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	agent := workload.WeightsContainer("chat")
	fetches := func(name string, began time.Time, change ...func(*corev1.Pod)) corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.LabelWorkspace: "chat"}}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
			Name: agent, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}},
		}}
		for _, c := range change {
			c(&pod)
		}
		return pod
	}
	of := func(change func(*corev1.ContainerStatus)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { change(&pod.Status.InitContainerStatuses[0]) }
	}
	for _, tc := range []struct {
		reason string
		pods   []corev1.Pod
		want   time.Time
	}{
		{"there is no pod", nil, time.Time{}},
		{"an agent fetches", []corev1.Pod{fetches("chat-0", noon)}, noon},
		{"the older of two counts", []corev1.Pod{fetches("chat-0", noon.Add(time.Hour)), fetches("chat-1", noon)}, noon},
		{"it has all files", []corev1.Pod{fetches("chat-0", noon, of(func(s *corev1.ContainerStatus) { s.Started = new(true) }))}, time.Time{}},
		{"it waits to be started again", []corev1.Pod{fetches("chat-0", noon, of(func(s *corev1.ContainerStatus) {
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		}))}, time.Time{}},
		{"another init container runs", []corev1.Pod{fetches("chat-0", noon, of(func(s *corev1.ContainerStatus) { s.Name = "setup" }))}, time.Time{}},
		{"its pod is on its way out", []corev1.Pod{fetches("chat-0", noon, func(pod *corev1.Pod) {
			pod.DeletionTimestamp = &metav1.Time{Time: noon}
		})}, time.Time{}},
		{"its group is not known to be isolated", []corev1.Pod{fetches("chat-0", noon, func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{v1beta1.AnnotationIsolation: v1beta1.IsolationRequired}
		})}, time.Time{}},
		{"its group is known to be isolated", []corev1.Pod{fetches("chat-0", noon, func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{v1beta1.AnnotationIsolation: v1beta1.IsolationFound}
		})}, noon},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := diagnosis.FetchingSince(tc.pods); !got.Equal(tc.want) {
				t.Errorf("since %s, want %s", got, tc.want)
			}
		})
	}
}
