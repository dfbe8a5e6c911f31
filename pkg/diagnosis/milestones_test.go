// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/diagnosis"
)

func TestMilestones(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) metav1.Time { return metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute)) }
	reached := func(minutes int) diagnosis.Milestone { return diagnosis.Milestone{Reached: true, At: at(minutes).Time} }
	unnoted := diagnosis.Milestone{Reached: true}
	holds := func(kind corev1.PodConditionType, minutes int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at(minutes),
			})
		}
	}
	runs := func(minutes int) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(minutes)}}
	}
	ran := func(minutes int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(minutes), ExitCode: 1}}
	}
	bare := func(p *corev1.Pod) {
		p.Status.Conditions = nil
		p.Status.ContainerStatuses[0] = status("chat", waiting("PodInitializing", ""), nil)
	}
	for _, tc := range []struct {
		reason string
		want   int
		pods   []corev1.Pod
		got    diagnosis.Milestones
	}{
		{"no pod", 1, nil, diagnosis.Milestones{}},
		{"nothing is wanted", 0, []corev1.Pod{pod(isReady)}, diagnosis.Milestones{}},
		{"a pod that fetches", 1, []corev1.Pod{pod(bare)}, diagnosis.Milestones{}},
		{
			"the weights are there, and the engine's image is not", 1,
			[]corev1.Pod{pod(bare, holds(corev1.PodInitialized, 3))},
			diagnosis.Milestones{Fetched: reached(3)},
		},
		{
			"the engine loads", 1,
			[]corev1.Pod{pod(bare, holds(corev1.PodInitialized, 3), engine(runs(5)))},
			diagnosis.Milestones{Fetched: reached(3), Pulled: reached(5)},
		},
		{
			"the engine loads once more: its image was there at its first start", 1,
			[]corev1.Pod{pod(bare, holds(corev1.PodInitialized, 3), engine(runs(9), ran(5)))},
			diagnosis.Milestones{Fetched: reached(3), Pulled: reached(5)},
		},
		{
			"the engine has just ended", 1,
			[]corev1.Pod{pod(bare, holds(corev1.PodInitialized, 3), engine(ran(5)))},
			diagnosis.Milestones{Fetched: reached(3), Pulled: reached(5)},
		},
		{
			"it answers", 1,
			[]corev1.Pod{pod(bare, holds(corev1.PodInitialized, 3), engine(runs(5)), holds(corev1.PodReady, 7))},
			diagnosis.Milestones{Fetched: reached(3), Pulled: reached(5), Ready: reached(7)},
		},
		{
			"it answers, and nobody noted how it got there", 1,
			[]corev1.Pod{pod(bare, holds(corev1.PodReady, 7))},
			diagnosis.Milestones{Fetched: unnoted, Pulled: unnoted, Ready: reached(7)},
		},
		{
			"of several pods the last counts", 2,
			[]corev1.Pod{
				member("chat-0", bare, holds(corev1.PodInitialized, 3), engine(runs(5)), holds(corev1.PodReady, 9)),
				member("chat-1", bare, holds(corev1.PodInitialized, 6), engine(runs(7))),
			},
			diagnosis.Milestones{Fetched: reached(6), Pulled: reached(7)},
		},
		{
			"a pod on its way out does not count", 1,
			[]corev1.Pod{pod(isReady, func(p *corev1.Pod) { p.DeletionTimestamp = new(at(1)) })},
			diagnosis.Milestones{},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := diagnosis.MilestonesOf(diagnosis.Input{Want: tc.want, Pods: tc.pods})
			if diff := cmp.Diff(tc.got, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
