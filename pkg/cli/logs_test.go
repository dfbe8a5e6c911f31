// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// echo is a log with the options of its request.
func echo(pod types.NamespacedName, o *corev1.PodLogOptions) (string, error) {
	tail := "all"
	if o.TailLines != nil {
		tail = fmt.Sprint(*o.TailLines)
	}
	return fmt.Sprintf("%s/%s tail=%s previous=%v\n", pod.Name, o.Container, tail, o.Previous), nil
}

func TestLogs(t *testing.T) {
	own := pod(0, running(true), func(p *corev1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers = nil, []corev1.Container{{Name: "server"}, {Name: "chatter"}}
	})
	group := []client.Object{workspace(), pod(0, running(true)), pod(1, running(true))}
	tests := []struct {
		reason  string
		objects []client.Object
		args    string
		want    ran
	}{
		{"the engine of the leader", group, "chat", ran{Out: "chat-0/chat tail=all previous=false\n"}},
		{"the weights of a member", group, "chat --weights --member 1 --tail 5", ran{Out: "chat-1/weights tail=5 previous=false\n"}},
		{"before a restart", group, "chat --previous --tail 0", ran{Out: "chat-0/chat tail=0 previous=true\n"}},
		{"the first container of a pod of the user's own", []client.Object{workspace(), own}, "chat", ran{Out: "chat-0/server tail=all previous=false\n"}},
		{
			"weights that nobody fetches",
			[]client.Object{workspace(), own},
			"chat --weights",
			ran{Err: "pod team-a/chat-0 fetches no weights: leave --weights out", Code: 2},
		},
		{
			"a member that there is not", group, "chat --member 2",
			ran{Err: "Workspace team-a/chat has no pod number 2: use 0 or 1", Code: 5},
		},
		{
			"no pod yet", group[:1], "chat",
			ran{Err: "Workspace team-a/chat has no pod number 0: kubectl berth status chat shows its progress", Code: 5},
		},
		{"what has ended cannot be followed", group, "chat -f --previous", ran{Err: "--previous prints the log of a stopped container, which cannot be followed: leave --follow out", Code: 2}},
		{"a negative member", group, "chat --member -1", ran{Err: "--member is -1: it must be 0 (the leader) or greater", Code: 2}},
		{"a negative tail", group, "chat --tail -2", ran{Err: "--tail is -2: it must be a number of lines, or -1 for all", Code: 2}},
		{"no name", group, "", ran{Err: "accepts 1 arg(s), received 0", Code: 2}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := &cluster{objects: test.objects, pods: &pods{log: echo}}
			if test.want.Err != "" {
				test.want.Err = "kubectl berth logs: " + test.want.Err + "\n"
			}
			if diff := cmp.Diff(test.want, c.run(t, session{}, append([]string{"logs"}, strings.Fields(test.args)...)...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogsRefused(t *testing.T) {
	c := &cluster{objects: []client.Object{workspace(), pod(0)}, pods: &pods{log: func(types.NamespacedName, *corev1.PodLogOptions) (string, error) {
		return "", errors.New(`container "chat" in pod "chat-0" is waiting to start`)
	}}}
	want := ran{
		Err:  `kubectl berth logs: log of container chat of pod team-a/chat-0: container "chat" in pod "chat-0" is waiting to start` + "\n",
		Code: 5,
	}
	if diff := cmp.Diff(want, c.run(t, session{}, "logs", "chat")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLogsFollow follows a log across a broken stream, a restart and another pod of the same name. No line repeats.
func TestLogsFollow(t *testing.T) {
	c := &cluster{objects: []client.Object{workspace(), pod(0)}}
	streams := 0
	c.pods = &pods{log: func(_ types.NamespacedName, o *corev1.PodLogOptions) (string, error) {
		streams++
		return fmt.Sprintf("stream %d, from the start %v, all %v\n", streams, o.SinceTime == nil, o.TailLines == nil), nil
	}}
	clock := clocktesting.NewFakeClock(noon)
	s := follow(t, c, session{clock: clock}, "logs", "chat", "-f", "--tail", "3")
	s.change(t, pod(0, running(false)))
	s.out.until(t, "stream 1,")
	for !strings.Contains(s.out.String(), "stream 2,") {
		clock.Step(time.Second)
		select {
		case <-s.out.more:
		case <-time.After(10 * time.Millisecond): // it has not looked yet: another second may pass
		}
	}
	ended := func(p *corev1.Pod) {
		running(false)(p)
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		p.Status.ContainerStatuses[0].RestartCount = 1
	}
	s.change(t, pod(0, ended))
	s.out.until(t, "from the start true, all true")
	if err := s.objects.Delete(t.Context(), pod(0)); err != nil {
		t.Fatal(err)
	}
	before := strings.Count(s.out.String(), "from the start true, all true")
	s.change(t, pod(0, ended, func(p *corev1.Pod) { p.UID = "another" }))
	for strings.Count(s.out.String(), "from the start true, all true") == before {
		select {
		case <-s.out.more:
		case <-time.After(20 * time.Second):
			t.Fatalf("the other pod's log never came: %s", s.out.String())
		}
	}
	if diff := cmp.Diff("stream 1, from the start true, all false\nstream 2, from the start false, all true\n",
		strings.Join(strings.SplitAfter(s.out.String(), "\n")[:2], "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
