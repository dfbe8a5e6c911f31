// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/workload"
)

// RestartLimit is how long a restarting pod still counts as serving.
const RestartLimit = 5 * time.Minute

// Diagnosed returns the input of a diagnosis of the pods.
func (s *Scope) Diagnosed() diagnosis.Input {
	in := diagnosis.Input{Pods: s.Pods, Nodes: s.Nodes, Signatures: s.Signatures, Warnings: s.Warnings}
	if runs := s.Running(); runs != nil {
		in.Want, in.Plan = runs.Plan.Nodes, &runs.Plan
	}
	return in
}

// IsCurrent reports whether the pods match the desired StatefulSet.
func (s *Scope) IsCurrent() bool {
	return !s.IsRolling && (!s.IsGroup() || s.Workers != nil) && s.IsRolledOut()
}

// Leader returns the pod that answers requests, once it is ready; nil before.
func (s *Scope) Leader() *corev1.Pod {
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Name == s.Workspace.Name+"-0" && pod.Status.PodIP != "" && IsPodReady(pod) {
			return pod
		}
	}
	return nil
}

// FirstPod returns the pod that answers requests, whether it is ready or not; nil if there is none.
func (s *Scope) FirstPod() *corev1.Pod {
	for _, pod := range s.CurrentPods() {
		if pod.Name == s.Workspace.Name+"-0" {
			return pod
		}
	}
	return nil
}

// IsPodReady reports whether a pod gets requests.
func IsPodReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// IsServing reports whether the pods answer now, or will answer again shortly.
func (s *Scope) IsServing(now time.Time) bool {
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Name != s.Workspace.Name+"-0" {
			continue
		}
		since := pod.CreationTimestamp.Time
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.LastTransitionTime.After(since) {
				since = condition.LastTransitionTime.Time
			}
		}
		return IsPodReady(pod) || now.Sub(since) < RestartLimit
	}
	return false
}

// HasReadyPod reports whether a pod is ready for requests now. IsServing also counts a restarting pod.
func (s *Scope) HasReadyPod() bool {
	if s.IsGroup() {
		return s.Leader() != nil
	}
	for i := range s.Pods {
		if IsPodReady(&s.Pods[i]) {
			return true
		}
	}
	return false
}

// HasEndpoint reports whether the Service sends requests to a ready pod of the Workspace.
func (s *Scope) HasEndpoint() bool {
	return slices.ContainsFunc(s.CurrentPods(), func(pod *corev1.Pod) bool {
		return IsPodReady(pod) && slices.Contains(s.Endpoints, pod.UID)
	})
}

// IsHeldBack reports whether the engines of a group wait until a probe shows that other pods cannot reach it.
func (s *Scope) IsHeldBack() bool {
	return s.IsGroup() && slices.ContainsFunc(s.CurrentPods(), workload.IsHeld)
}

// PodState returns the facts about pods for a decision about machines.
func (s *Scope) PodState(now time.Time) acquire.Pods {
	out := acquire.Pods{
		HasSet: s.StatefulSet != nil, Pinned: workload.PinnedAttempt(s.StatefulSet),
		IsRolledOut: s.IsRolledOut(), IsAnswering: s.IsServing(now), HasLeader: s.Leader() != nil,
		IsReady: s.HasAnsweringPod(),
	}
	if since := diagnosis.FetchingSince(s.Pods); !since.IsZero() {
		out.FetchProof = since.Add(fetch.LongestStall + fetch.GiveUpAfter) // the kubelet reports an end a little later
	}
	for i := range s.Pods {
		out.Nodes = append(out.Nodes, s.Pods[i].Spec.NodeName)
	}
	return out
}
