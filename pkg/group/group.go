// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package group decides when to replace the pods that serve one model together. An engine on several machines works
// only with all of its members. No member may restart alone, because the others depend on the state of the lost member.
//
// It decides from the present pods and StatefulSets, and keeps no state, so a crash of the controller does not change
// the decision. It must not know clients, plans or engines. If an agent detects a lost member, the agent ends, and this
// package treats that like any other end.
package group

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Do is the next action on a group.
type Do string

// The actions.
const (
	// Keep means to do nothing until something changes.
	Keep Do = "Keep"
	// Wait means that a member failed before the start time of the engines. At that time, the group is replaced.
	Wait Do = "Wait"
	// Replace means that a member failed, and a new group takes over. The old group ends at once, because its leader
	// would continue to accept requests that it cannot answer.
	Replace Do = "Replace"
	// Delete means to delete the pods of an earlier group or an earlier template.
	Delete Do = "Delete"
)

// If a group ran for at least lasted, the engines of the next group start at once. After each early failure in a row,
// they start later: the delay doubles from firstDelay to longestDelay.
const (
	firstDelay   = 10 * time.Second
	longestDelay = 300 * time.Second
	lasted       = 10 * time.Minute
)

// failedGrace is the grace period in seconds for the pods of a failed group. It is short, because they can finish no
// request without the lost member.
const failedGrace = 2

// State is the input of the decision.
type State struct {
	// Sets run the members. Pods are the pods of the Sets.
	Sets []*appsv1.StatefulSet
	Pods []corev1.Pod
	// Failures is the recorded number of failures in a row.
	Failures int
	// NotBefore is the earliest start of this group's engines.
	NotBefore, Now time.Time
}

// Step is the decision.
type Step struct {
	Do Do
	// Failure is a sentence about the first failed member, for Wait and Replace.
	Failure string
	// Failures is the number of failures in a row, including this one; for Replace.
	Failures int
	// Until is the end of a Wait. For Replace, it is the start of the next group's engines; zero means at once.
	Until time.Time
	// Leaving are the pods to delete.
	Leaving []Leaving
}

// Leaving is a pod to delete.
type Leaving struct {
	Name string
	UID  types.UID
	// GraceSeconds is the grace period; nil means the pod's own setting.
	GraceSeconds *int64
}

// Decide returns the next action on a group.
func Decide(s State) Step {
	for _, set := range s.Sets {
		if set == nil || set.Status.ObservedGeneration != set.Generation || set.Status.UpdateRevision == "" {
			return Step{Do: Keep} // the current revision is not known yet
		}
	}
	current, former := s.sorted()
	if len(former) > 0 {
		return Step{Do: Delete, Leaving: leaving(former)}
	}
	failed := first(current, s.members())
	if failed == nil {
		return Step{Do: Keep}
	}
	if s.Now.Before(s.NotBefore) {
		return Step{Do: Wait, Failure: failed.said, Until: s.NotBefore}
	}
	failures := s.Failures
	if failed.at.Sub(later(youngest(current), s.NotBefore)) >= lasted {
		failures = 0
	}
	step := Step{Do: Replace, Failure: failed.said, Failures: failures + 1}
	// The recorded start time has whole seconds.
	if until := failed.at.Add(delay(failures)).Truncate(time.Second); s.Now.Before(until) {
		step.Until = earlier(until, s.Now.Add(delay(failures)).Truncate(time.Second))
	}
	return step
}

// sorted separates the pods of the sets' current templates from earlier pods. It skips pods that are being deleted.
func (s State) sorted() (current, former []*corev1.Pod) {
	for i := range s.Pods {
		pod := &s.Pods[i]
		switch {
		case pod.DeletionTimestamp != nil:
		case slices.ContainsFunc(s.Sets, func(set *appsv1.StatefulSet) bool {
			return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision
		}):
			current = append(current, pod)
		default:
			former = append(former, pod)
		}
	}
	return current, former
}

// members returns the desired number of pods.
func (s State) members() int {
	n := 0
	for _, set := range s.Sets {
		n += int(ptr.Deref(set.Spec.Replicas, 1))
	}
	return n
}

// leaving returns the pods to delete. They have their own grace period to finish requests, unless one of them failed.
func leaving(pods []*corev1.Pod) []Leaving {
	var grace *int64
	if first(pods, 0) != nil {
		grace = new(int64(failedGrace))
	}
	out := make([]Leaving, len(pods))
	for i, pod := range pods {
		out[i] = Leaving{Name: pod.Name, UID: pod.UID, GraceSeconds: grace}
	}
	return out
}

// delay returns the delay before the next group's start, after a number of failures in a row.
func delay(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	wait := firstDelay
	for range failures - 1 {
		if wait *= 2; wait >= longestDelay {
			return longestDelay
		}
	}
	return wait
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// youngest returns the creation time of the newest pod.
func youngest(pods []*corev1.Pod) time.Time {
	var at time.Time
	for _, pod := range pods {
		if made := pod.CreationTimestamp.Time; made.After(at) {
			at = made
		}
	}
	return at
}

// Describe describes a step for the Workspace's condition; empty if nothing failed.
func (s Step) Describe(members int) string {
	switch s.Do {
	case Replace:
		if !s.Until.IsZero() {
			return fmt.Sprintf("%s; all %d members are replaced and start at %s", s.Failure, members, s.Until.UTC().Format(time.TimeOnly))
		}
		return fmt.Sprintf("%s; all %d members are replaced", s.Failure, members)
	case Wait:
		return fmt.Sprintf("%s; all %d members are replaced at %s", s.Failure, members, s.Until.UTC().Format(time.TimeOnly))
	default:
		return ""
	}
}
