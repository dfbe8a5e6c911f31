// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/pkg/wording"
)

// failure is the end of a member.
type failure struct {
	pod  string
	at   time.Time
	said string
	// isEngine is set if the engine ended. isReaction is set if an agent ended because another member did not answer.
	isEngine, isReaction bool
}

// first returns the probable first failure; nil if no member failed. An engine's failure comes before an agent's,
// because agents end when another member fails. Otherwise the earliest counts.
func first(pods []*corev1.Pod, members int) *failure {
	var all []failure
	for _, pod := range pods {
		whole, isWhole := lastStart(pods, pod)
		for _, f := range failures(pod) {
			// If an engine ends before the others have started, for example because it does not wait for them, nothing
			// is broken. The kubelet restarts it, and the group is whole then.
			if isEarly := !isWhole || len(pods) < members || !f.at.IsZero() && !f.at.After(whole); f.isEngine && isEarly {
				continue
			}
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b failure) int {
		if a.isReaction != b.isReaction {
			if b.isReaction {
				return -1
			}
			return 1
		}
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.pod, b.pod))
	})
	return &all[0]
}

// failures returns the failures of one member. The kubelet may have restarted a container, so its end is in the last
// state.
func failures(pod *corev1.Pod) []failure {
	var out []failure
	if pod.Status.Phase == corev1.PodFailed {
		out = append(out, failure{pod: pod.Name, at: failedAt(pod), said: fmt.Sprintf("member %s failed%s", pod.Name,
			quoted(cmp.Or(pod.Status.Message, pod.Status.Reason)))})
	}
	for i := range pod.Status.ContainerStatuses {
		if end := ended(&pod.Status.ContainerStatuses[i]); end != nil {
			code := fmt.Sprintf("exit code %d", end.ExitCode)
			if end.ExitCode == unknownExit {
				code = "an unknown exit code"
			}
			out = append(out, failure{pod: pod.Name, at: end.FinishedAt.Time, isEngine: true, said: fmt.Sprintf(
				"member %s ended with %s%s", pod.Name, code, quoted(lastWords(end)))})
		}
	}
	started, isStarted := engineStarted(pod)
	for i := range pod.Status.InitContainerStatuses {
		end := ended(&pod.Status.InitContainerStatuses[i])
		// If an agent ends before the engine has started, for example because it cannot fetch the weights, the kubelet
		// restarts it. No other member has joined this one yet.
		if end == nil || end.ExitCode == 0 || !isStarted || end.FinishedAt.Time.Before(started) {
			continue
		}
		out = append(out, failure{
			pod: pod.Name, at: end.FinishedAt.Time, isReaction: true,
			said: fmt.Sprintf("the agent of member %s ended%s", pod.Name, quoted(lastWords(end))),
		})
	}
	return out
}

// ended returns the last end of a container; nil if it never ended.
func ended(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case status.State.Terminated != nil:
		return status.State.Terminated
	case status.LastTerminationState.Terminated == nil && status.RestartCount > 0:
		// The runtime no longer has the details.
		return &corev1.ContainerStateTerminated{ExitCode: unknownExit, Reason: "the kubelet has restarted its container"}
	default:
		return status.LastTerminationState.Terminated
	}
}

// unknownExit stands for an unknown exit code. No process can have it.
const unknownExit = -1

// engineStarted returns when the pod's engine started; false if it has not.
func engineStarted(pod *corev1.Pod) (time.Time, bool) {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if end := ended(status); end != nil {
			return end.StartedAt.Time, true
		}
		if status.State.Running != nil {
			return status.State.Running.StartedAt.Time, true
		}
	}
	return time.Time{}, false
}

// lastStart returns when the last of the other members' engines started, and whether all of them have started.
func lastStart(pods []*corev1.Pod, but *corev1.Pod) (last time.Time, all bool) {
	for _, pod := range pods {
		if pod == but {
			continue
		}
		started, isStarted := engineStarted(pod)
		if !isStarted {
			return time.Time{}, false
		}
		// A worker may start some time before others can join it. It becomes ready when they can.
		if since := readySince(pod); pod.Labels[appsv1.PodIndexLabel] != leaderIndex && since.After(started) {
			started = since
		}
		if started.After(last) {
			last = started
		}
	}
	return last, true
}

// leaderIndex is the index of the serving pod. That pod becomes ready long after its start.
const leaderIndex = "0"

// readySince returns when a pod became ready; zero if it is not ready.
func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// failedAt returns when a pod failed, according to its conditions.
func failedAt(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for _, condition := range pod.Status.Conditions {
		if changed := condition.LastTransitionTime.Time; changed.After(at) {
			at = changed
		}
	}
	return at
}

// lastWords returns the last line of a container's log, or an agent's sentence.
func lastWords(end *corev1.ContainerStateTerminated) string {
	var agent struct {
		Message string `json:"message"`
	}
	if json.Unmarshal([]byte(end.Message), &agent) == nil && agent.Message != "" {
		return agent.Message
	}
	text := strings.TrimSpace(end.Message)
	if at := strings.LastIndexByte(text, '\n'); at >= 0 {
		text = strings.TrimSpace(text[at:])
	}
	return cmp.Or(text, end.Reason)
}

// longestQuote limits the length of a log's line in the condition.
const longestQuote = 200

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return " (" + wording.Clip(text, longestQuote) + ")"
}
