// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/isolate"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/progress"
)

// member returns a pod of a group, whose agent has run since started.
func member(name, found string, started time.Time) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-of-" + name)}}
	pod.Annotations = map[string]string{v1beta1.AnnotationIsolation: found}
	pod.Status.PodIP = "10.0.0.1"
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "weights", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
	}}
	return pod
}

// TestGroupStartsOnlyIsolated: no engine of a group starts before NetworkPolicies are enforced, because such engines
// execute received data.
func TestGroupStartsOnlyIsolated(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const required, found, waived = v1beta1.IsolationRequired, v1beta1.IsolationFound, v1beta1.IsolationWaived
	exposed := isolation.Finding{Outcome: isolation.Exposed, Message: "port 8090 was reached"}
	isolated := isolation.Finding{Outcome: isolation.Isolated}
	for _, tc := range []struct {
		reason string
		policy isolation.Policy
		probe  isolation.Finding
		pods   []string
		age    time.Duration
		want   []string
		// stalls and waits are results for this group; refuses is the result for purchases of other groups.
		stalls, waits, refuses bool
		probes                 int
	}{
		{reason: "isolated", probe: isolated, pods: []string{required, required}, want: []string{found, found}, probes: 1},
		{reason: "a crash came between two writes", probe: isolated, pods: []string{found, required}, want: []string{found, found}, probes: 1},
		{reason: "settled", probe: isolated, pods: []string{found, found}, want: []string{found, found}},
		{reason: "a member is missing", probe: isolated, pods: []string{required}, want: []string{required}},
		{
			reason: "exposed", probe: exposed, pods: []string{required, required}, age: time.Hour, want: []string{required, required},
			stalls: true, refuses: true, probes: 1,
		},
		{
			reason: "policies take a moment to be applied", probe: exposed, pods: []string{required, required}, age: 10 * time.Second,
			want: []string{required, required}, waits: true, probes: 1,
		},
		{
			reason: "nothing is proven", probe: isolation.Finding{Outcome: isolation.Unknown, Message: "no route"}, age: time.Hour,
			pods: []string{required, required}, want: []string{required, required}, waits: true, probes: 1,
		},
		{reason: "the administrator allows it by now", policy: isolation.Allow, pods: []string{required, required}, want: []string{waived, waived}},
		{reason: "an earlier version rendered it", probe: exposed, pods: []string{"", ""}, want: []string{"", ""}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var pods []*corev1.Pod
			kube := fake.NewClientBuilder()
			for i, value := range tc.pods {
				pod := member([]string{"chat-0", "chat-worker-1"}[i], value, now.Add(-tc.age))
				pods, kube = append(pods, &pod), kube.WithObjects(pod.DeepCopy())
			}
			if tc.policy == "" {
				tc.policy = isolation.RequireEnforcement
			}
			probes, clock := 0, testclock.NewFakePassiveClock(now)
			guard := isolation.NewGuard(tc.policy, func(context.Context, []isolation.Member) isolation.Finding {
				probes++
				return tc.probe
			}, clock)
			built := kube.Build()
			starter := isolate.Starter{Client: built, Guard: guard, Clock: clock}
			_, err := starter.Start(t.Context(), isolation.Group{Namespace: "team-a", Name: "chat"}, pods, 2)
			stall, isStalled := errors.AsType[*progress.StalledError](err)
			if isStalled != tc.stalls || progress.IsWaiting(err) != tc.waits || (guard.Refusal("team-a") != "") != tc.refuses || probes != tc.probes {
				t.Errorf("stalled %v, waiting %v (%v), refuses others with %q, %d probes", isStalled, progress.IsWaiting(err), err, guard.Refusal("team-a"), probes)
			}
			if isStalled && stall.Reason != v1beta1.ReasonGroupNotIsolated {
				t.Errorf("reason %s", stall.Reason)
			}
			var got []string
			for i := range pods {
				pod := &corev1.Pod{}
				if err := built.Get(t.Context(), client.ObjectKeyFromObject(pods[i]), pod); err != nil {
					t.Fatal(err)
				}
				got = append(got, pod.Annotations[v1beta1.AnnotationIsolation])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}
