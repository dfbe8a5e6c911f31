// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Milestone is a point in the start of a Workspace's pods.
type Milestone struct {
	// Reached is set if all pods have passed the milestone. At is when the last pod did: zero if the time was not
	// recorded.
	Reached bool
	At      time.Time
}

// Milestones of a Workspace's pods, in the kubelet's order. The kubelet starts the engine's container once the agent
// reports that all files are there, and pulls its image just before.
type Milestones struct {
	// Fetched is when the init containers had finished and the weights were there.
	Fetched Milestone
	// Pulled is when the containers first ran and their images were there.
	Pulled Milestone
	// Ready is when the pods were ready.
	Ready Milestone
}

// MilestonesOf reads the times that the cluster recorded. A pod past a milestone is past the earlier ones.
func MilestonesOf(in Input) Milestones {
	pods := living(in.Pods)
	if in.Want <= 0 || len(pods) < in.Want {
		return Milestones{}
	}
	out := Milestones{Fetched: Milestone{Reached: true}, Pulled: Milestone{Reached: true}, Ready: Milestone{Reached: true}}
	for i := range pods {
		pod := &pods[i]
		isReady, readyAt := turned(pod, corev1.PodReady)
		isPulled, pulledAt := firstRan(pod)
		isFetched, fetchedAt := turned(pod, corev1.PodInitialized)
		out.Ready.join(isReady, readyAt)
		out.Pulled.join(isPulled || isReady, pulledAt)
		out.Fetched.join(isFetched || isPulled || isReady, fetchedAt)
	}
	return out
}

// join adds the time of one more pod.
func (m *Milestone) join(isReached bool, at time.Time) {
	m.Reached = m.Reached && isReached
	if !m.Reached {
		m.At = time.Time{}
	} else if at.After(m.At) {
		m.At = at
	}
}

// turned reports whether a condition is true, and since when.
func turned(pod *corev1.Pod, kind corev1.PodConditionType) (bool, time.Time) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return true, condition.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// firstRan reports whether all containers have run, and when the last of them first ran, as far as their statuses show.
func firstRan(pod *corev1.Pod) (bool, time.Time) {
	var last time.Time
	for i := range pod.Status.ContainerStatuses {
		began := began(&pod.Status.ContainerStatuses[i])
		if began.IsZero() {
			return false, time.Time{}
		}
		if began.After(last) {
			last = began
		}
	}
	return !last.IsZero(), last
}

// began returns when a container first ran, as far as its status shows; zero if it has not run.
func began(status *corev1.ContainerStatus) time.Time {
	switch {
	case status.LastTerminationState.Terminated != nil:
		return status.LastTerminationState.Terminated.StartedAt.Time
	case status.State.Terminated != nil:
		return status.State.Terminated.StartedAt.Time
	case status.State.Running != nil:
		return status.State.Running.StartedAt.Time
	default:
		return time.Time{}
	}
}
