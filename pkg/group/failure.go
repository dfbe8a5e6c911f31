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
	// isEngine is set if the engine ended, isReaction if an agent ended because it missed another member.
	isEngine, isReaction bool
}

// first returns the probable first failure: an engine's before an agent's, because agents end when they miss a
// member, and then the earliest. Nil if no member failed.
func first(pods []*corev1.Pod, members int) *failure {
	var all []failure
	for _, pod := range pods {
		whole, isWhole := lastStart(pods, pod)
		for _, f := range failures(pod) {
			// An engine that ends before the others have started has broken nothing, for example because it does
			// not wait for them: the kubelet restarts it, and the group is whole then.
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

// failures of one member. The kubelet restarts containers on its own, so an end is visible in the last state.
func failures(pod *corev1.Pod) []failure {
	var out []failure
	if pod.Status.Phase == corev1.PodFailed {
		out = append(out, failure{pod: pod.Name, at: failedAt(pod), said: fmt.Sprintf("member %s failed%s", pod.Name,
			quoted(cmp.Or(pod.Status.Message, pod.Status.Reason)))})
	}
	for i := range pod.Status.ContainerStatuses {
		if end := ended(&pod.Status.ContainerStatuses[i]); end != nil {
			out = append(out, failure{pod: pod.Name, at: end.FinishedAt.Time, isEngine: true, said: fmt.Sprintf(
				"member %s ended with exit code %d%s", pod.Name, end.ExitCode, quoted(lastWords(end)))})
		}
	}
	started, isStarted := engineStarted(pod)
	for i := range pod.Status.InitContainerStatuses {
		end := ended(&pod.Status.InitContainerStatuses[i])
		// A container that ends before the engine has started, for example because the weights cannot be fetched,
		// resumes on its own, and no member has joined yet.
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

// ended is how a container ended last; nil if it never did.
func ended(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case status.State.Terminated != nil:
		return status.State.Terminated
	case status.LastTerminationState.Terminated == nil && status.RestartCount > 0:
		// The runtime has forgotten how.
		return &corev1.ContainerStateTerminated{ExitCode: unknownExit, Reason: "it was started again"}
	default:
		return status.LastTerminationState.Terminated
	}
}

// unknownExit is not a possible exit code of a process.
const unknownExit = -1

// engineStarted is when the pod's own containers began.
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

// lastStart is when the last of the other members' engines began, and whether all of them did.
func lastStart(pods []*corev1.Pod, but *corev1.Pod) (last time.Time, all bool) {
	for _, pod := range pods {
		if pod == but {
			continue
		}
		started, isStarted := engineStarted(pod)
		if !isStarted {
			return time.Time{}, false
		}
		// A worker may begin some time before it can be joined; it is ready then.
		if since := readySince(pod); pod.Labels[appsv1.PodIndexLabel] != leaderIndex && since.After(started) {
			started = since
		}
		if started.After(last) {
			last = started
		}
	}
	return last, true
}

// leaderIndex is the index of the serving pod. It is ready much later than it starts.
const leaderIndex = "0"

// readySince is when a pod became ready; zero if it is not.
func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// failedAt is when a pod came to its end by its own conditions.
func failedAt(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for _, condition := range pod.Status.Conditions {
		if changed := condition.LastTransitionTime.Time; changed.After(at) {
			at = changed
		}
	}
	return at
}

// lastWords are the last line of a container, or the sentence of an agent.
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

// longestQuote keeps a line of a log from filling the condition.
const longestQuote = 200

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return " (" + wording.Clip(text, longestQuote) + ")"
}
