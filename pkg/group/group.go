// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package group decides about the pods that serve one model together. An engine on several machines works only with
// all of its members. None of them may restart alone, because the others hold the state of the lost one.
//
// It decides from the present pods and sets, and keeps nothing: after a crash at any moment, the decision is the
// same. It must not know clients, plans or engines. The agents notice a lost member and end; this package sees that
// like any other end.
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
	// Keep: nothing, until something moves.
	Keep Do = "Keep"
	// Wait: a member failed before the engines were to start, and the group is replaced then.
	Wait Do = "Wait"
	// Replace: a member failed, and another group takes over. The former one ends at once, because its leader would
	// continue to accept requests that nobody can answer.
	Replace Do = "Replace"
	// Delete: pods of a former group, or of a former template, go.
	Delete Do = "Delete"
)

// After a group that lasted, the engines of the next one start at once; after early failures, they start later each
// time.
const (
	firstDelay   = 10 * time.Second
	longestDelay = 300 * time.Second
	lasted       = 10 * time.Minute
)

// failedGrace is the grace period in seconds for the pods of a failed group: they can finish nothing without the
// lost member.
const failedGrace = 2

// State is the input of the decision.
type State struct {
	// Sets run the members, and Pods are theirs.
	Sets []*appsv1.StatefulSet
	Pods []corev1.Pod
	// Failures in a row on record.
	Failures int
	// NotBefore is when the engines of this group were to start at the earliest.
	NotBefore, Now time.Time
}

// Step is the decision.
type Step struct {
	Do Do
	// Failure is a sentence about the first failed member, for Wait and Replace.
	Failure string
	// Failures in a row with this one, with Replace.
	Failures int
	// Until when to Wait; with Replace, when the engines of the next group start, zero for at once.
	Until time.Time
	// Leaving are the pods to delete.
	Leaving []Leaving
}

// Leaving is a pod to delete.
type Leaving struct {
	Name string
	UID  types.UID
	// GraceSeconds of the pod; nil means its own setting.
	GraceSeconds *int64
}

// Decide returns the next action on a group.
func Decide(s State) Step {
	for _, set := range s.Sets {
		if set == nil || set.Status.ObservedGeneration != set.Generation || set.Status.UpdateRevision == "" {
			return Step{Do: Keep} // which pods are former ones is not known yet
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
	// The record has whole seconds.
	if until := failed.at.Add(delay(failures)).Truncate(time.Second); s.Now.Before(until) {
		step.Until = earlier(until, s.Now.Add(delay(failures)).Truncate(time.Second))
	}
	return step
}

// sorted tells the pods of the sets' templates as they are now from former ones. Those under deletion
// are neither.
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

// members is how many pods there are to be.
func (s State) members() int {
	n := 0
	for _, set := range s.Sets {
		n += int(ptr.Deref(set.Spec.Replicas, 1))
	}
	return n
}

// leaving gives pods their own grace period to finish requests, unless one of them failed.
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

// delay before the next group, after a number of failures in a row.
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

// youngest is when the last of the pods was made.
func youngest(pods []*corev1.Pod) time.Time {
	var at time.Time
	for _, pod := range pods {
		if made := pod.CreationTimestamp.Time; made.After(at) {
			at = made
		}
	}
	return at
}

// Describe words a step for the Workspace's condition; empty if nothing failed.
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
