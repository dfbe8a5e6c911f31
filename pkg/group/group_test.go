// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package group_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/group"
)

// born is the creation time of all cases' pods.
var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return born.Add(time.Duration(seconds) * time.Second) }

// set returns a StatefulSet with a status that matches its template.
func set(name string, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}}
	s.Status.ObservedGeneration, s.Status.UpdateRevision = 2, name+"-new"
	for _, c := range change {
		c(s)
	}
	return s
}

// pod returns a pod of a set's current template, with a running engine and agent.
func pod(name, set string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(born),
		Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: set + "-new"},
	}}
	p.Status.Phase = corev1.PodRunning
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "weights", State: running(1)}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "chat", State: running(20)}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func running(since int) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(since))}}
}

func end(code int32, second int, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: "Error", Message: message, StartedAt: metav1.NewTime(at(20)), FinishedAt: metav1.NewTime(at(second)),
	}}
}

// engineEnded and agentEnded end a container. engineRestarted leaves the state after the kubelet's restart.
func engineEnded(code int32, second int, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = end(code, second, message) }
}

func engineRestarted(code int32, second int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].RestartCount = 1
		p.Status.ContainerStatuses[0].State = running(second + 1)
		p.Status.ContainerStatuses[0].LastTerminationState = end(code, second, "")
	}
}

func agentEnded(second int, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.InitContainerStatuses[0].RestartCount = 1
		p.Status.InitContainerStatuses[0].LastTerminationState = end(1, second, message)
	}
}

func former(p *corev1.Pod) { p.Labels[appsv1.ControllerRevisionHashLabelKey] += "-no-more" }

func notStarted(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
}

func leavingSince(second int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: at(second)} }
}

func TestDecide(t *testing.T) {
	whole := []corev1.Pod{pod("chat-0", "chat"), pod("chat-worker-1", "worker")}
	both := []*appsv1.StatefulSet{set("chat"), set("worker")}
	gone := func(grace *int64, names ...string) (list []group.Leaving) {
		for _, name := range names {
			list = append(list, group.Leaving{Name: name, UID: types.UID("uid-" + name), GraceSeconds: grace})
		}
		return list
	}
	for _, tc := range []struct {
		reason   string
		sets     []*appsv1.StatefulSet
		pods     []corev1.Pod
		failures int
		// notBefore is a second, or 0 for none.
		notBefore, now int
		want           group.Step
	}{
		{reason: "all members run", pods: whole, now: 60, want: group.Step{Do: group.Keep}},
		{reason: "a member is not there yet", pods: whole[:1], now: 60, want: group.Step{Do: group.Keep}},
		{reason: "there are no pods yet", now: 60, want: group.Step{Do: group.Keep}},
		{
			reason: "a set is not there yet", sets: []*appsv1.StatefulSet{set("chat"), nil}, now: 60,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 50, ""))}, want: group.Step{Do: group.Keep},
		},
		{
			reason: "a set's status is not yet of its template: which pods are former ones is not known", now: 60,
			sets: []*appsv1.StatefulSet{set("chat", func(s *appsv1.StatefulSet) { s.Generation = 3 }), set("worker")},
			pods: []corev1.Pod{pod("chat-0", "chat", former), pod("chat-worker-1", "worker")}, want: group.Step{Do: group.Keep},
		},
		{
			reason: "a worker's engine ended", now: 61,
			pods: []corev1.Pod{pod("chat-0", "chat"), pod("chat-worker-1", "worker", engineEnded(137, 60, ""))},
			want: group.Step{Do: group.Replace, Failure: "member chat-worker-1 ended with exit code 137 (Error)", Failures: 1},
		},
		{
			reason: "a worker's engine has been started again by the kubelet, which nobody saw", now: 90,
			pods: []corev1.Pod{pod("chat-0", "chat"), pod("chat-worker-1", "worker", engineRestarted(0, 60))},
			want: group.Step{Do: group.Replace, Failure: "member chat-worker-1 ended with exit code 0 (Error)", Failures: 1},
		},
		{
			reason: "the runtime has forgotten how it ended", now: 90,
			pods: []corev1.Pod{pod("chat-0", "chat", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 2 }), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with an unknown exit code (the kubelet has restarted its container)", Failures: 1},
		},
		{
			reason: "the leader ended first, and its last line says why; the worker missed it and said so later", now: 70,
			pods: []corev1.Pod{
				pod("chat-0", "chat", engineEnded(1, 66, "loading\nRuntimeError: CUDA error\n")),
				pod("chat-worker-1", "worker", agentEnded(64, `{"reason":"MemberLost","message":"member chat-0 has not answered for 4s"}`)),
			},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (RuntimeError: CUDA error)", Failures: 1},
		},
		{
			reason: "a member is gone with its node, and only the others tell", now: 70,
			pods: []corev1.Pod{
				pod("chat-0", "chat", agentEnded(66, `{"reason":"MemberLost","message":"member chat-worker-1 has not answered for 4s"}`)),
				pod("chat-worker-1", "worker", leavingSince(60)),
			},
			want: group.Step{Do: group.Replace, Failure: "the agent of member chat-0 ended (member chat-worker-1 has not answered for 4s)", Failures: 1},
		},
		{
			reason: "an agent that ends before its engine has started goes on where it was", now: 60,
			pods: []corev1.Pod{pod("chat-0", "chat", agentEnded(40, `{"reason":"HubUnreachable","message":"no route"}`), notStarted), whole[1]},
			want: group.Step{Do: group.Keep},
		},
		{
			reason: "what an agent did before its engine started is past", now: 60,
			pods: []corev1.Pod{pod("chat-0", "chat", agentEnded(10, `{"reason":"HubUnreachable","message":"no route"}`)), whole[1]},
			want: group.Step{Do: group.Keep},
		},
		{
			reason: "an engine that does not wait for the others ended before the last of them began", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", engineRestarted(139, 19)), whole[1]}, want: group.Step{Do: group.Keep},
		},
		{
			reason: "or before it could be joined", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", engineRestarted(139, 22)), pod("chat-worker-1", "worker", func(p *corev1.Pod) {
				p.Labels[appsv1.PodIndexLabel] = "1"
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(24))}}
			})},
			want: group.Step{Do: group.Keep},
		},
		{
			reason: "a worker that ended while the leader was getting ready counts, although it is ready now", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", func(p *corev1.Pod) {
				p.Labels[appsv1.PodIndexLabel] = "0"
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(60))}}
			}), pod("chat-worker-1", "worker", engineRestarted(1, 50))},
			want: group.Step{Do: group.Replace, Failure: "member chat-worker-1 ended with exit code 1 (Error)", Failures: 1},
		},
		{
			reason: "or before it is there", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", engineRestarted(139, 60)), pod("chat-worker-1", "worker", notStarted)},
			want: group.Step{Do: group.Keep},
		},
		{
			reason: "or before it has a pod", now: 70, pods: []corev1.Pod{pod("chat-0", "chat", engineRestarted(139, 60))},
			want: group.Step{Do: group.Keep},
		},
		{
			reason: "a pod was evicted", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat"), pod("chat-worker-1", "worker", func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}
			})},
			want: group.Step{Do: group.Replace, Failure: "member chat-worker-1 failed (The node was low on resource: memory.)", Failures: 1},
		},
		{
			reason: "a member that ends because it is deleted has not failed", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", leavingSince(50), engineEnded(143, 60, "")), whole[1]}, want: group.Step{Do: group.Keep},
		},
		{
			reason: "after the second failure in a row the engines start ten seconds from when it happened", failures: 1, now: 64,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 60, "")), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (Error)", Failures: 2, Until: at(70)},
		},
		{
			reason: "or at once, where that is past", failures: 1, now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 60, "")), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (Error)", Failures: 2},
		},
		{
			reason: "after the fourth they wait forty", failures: 3, now: 61,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 60, "")), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (Error)", Failures: 4, Until: at(100)},
		},
		{
			reason: "and never more than five minutes", failures: 40, now: 61,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 60, "")), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (Error)", Failures: 41, Until: at(360)},
		},
		{
			reason: "a node's clock that is ahead holds nothing up for longer", failures: 1, now: 60,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 500, "")), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (Error)", Failures: 2, Until: at(70)},
		},
		{
			reason: "a group that failed before its engines were to start goes then: nobody asks it anything", failures: 2, notBefore: 90, now: 62,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 60, "")), whole[1]},
			want: group.Step{Do: group.Wait, Failure: "member chat-0 ended with exit code 1 (Error)", Until: at(90)},
		},
		{
			reason: "and the next one waits for twice as long from then", failures: 2, notBefore: 90, now: 92,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 91, "")), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (Error)", Failures: 3, Until: at(111)},
		},
		{
			reason: "the time that engines were held back is not time that they lasted", failures: 2, notBefore: 300, now: 700,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 650, "")), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (Error)", Failures: 3},
		},
		{
			reason: "a group that lasted is replaced at once, and what was before does not count", failures: 7, now: 601,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(1, 600, "")), whole[1]},
			want: group.Step{Do: group.Replace, Failure: "member chat-0 ended with exit code 1 (Error)", Failures: 1},
		},
		{
			reason: "the number was written: pods of the former group go, with no time to finish what cannot be", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", former), pod("chat-worker-1", "worker", former, engineEnded(1, 60, ""))},
			want: group.Step{Do: group.Delete, Leaving: gone(new(int64(2)), "chat-0", "chat-worker-1")},
		},
		{
			reason: "a changed template: they go with the time that they ask for", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", former), pod("chat-worker-1", "worker", former)},
			want: group.Step{Do: group.Delete, Leaving: gone(nil, "chat-0", "chat-worker-1")},
		},
		{
			reason: "some are gone already, others on their way: the rest goes", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat"), pod("chat-worker-1", "worker", former, leavingSince(60)), pod("chat-worker-2", "worker", former)},
			want: group.Step{Do: group.Delete, Leaving: gone(nil, "chat-worker-2")},
		},
		{
			reason: "former members go before the next failure is looked at", now: 70,
			pods: []corev1.Pod{pod("chat-0", "chat", engineEnded(139, 65, "")), pod("chat-worker-1", "worker", former)},
			want: group.Step{Do: group.Delete, Leaving: gone(nil, "chat-worker-1")},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			sets := tc.sets
			if sets == nil {
				sets = both
			}
			state := group.State{Sets: sets, Pods: tc.pods, Failures: tc.failures, Now: at(tc.now)}
			if tc.notBefore != 0 {
				state.NotBefore = at(tc.notBefore)
			}
			got := group.Decide(state)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Decide: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(got, group.Decide(state)); diff != "" {
				t.Errorf("asked again, it says something else: -first +second:\n%s", diff)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	for _, tc := range []struct {
		step group.Step
		want string
	}{
		{group.Step{Do: group.Keep}, ""},
		{group.Step{Do: group.Delete}, ""},
		{group.Step{Do: group.Replace, Failure: "member chat-0 ended"}, "member chat-0 ended; all 2 members are replaced"},
		{
			group.Step{Do: group.Replace, Failure: "member chat-0 ended", Until: at(10)},
			"member chat-0 ended; all 2 members are replaced and start at 03:04:15",
		},
		{group.Step{Do: group.Wait, Failure: "member chat-0 ended", Until: at(10)}, "member chat-0 ended; all 2 members are replaced at 03:04:15"},
	} {
		if got := tc.step.Describe(2); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.step.Do, got, tc.want)
		}
	}
}
