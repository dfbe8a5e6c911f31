// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// If several machines serve one model, their pods are a group: either all of them work, or none. One StatefulSet runs
// the leader, which has rank 0 and answers requests. Another one runs the workers. Their ordinals start at 1, so the
// index of each pod is its rank.

// PodIndex is the environment variable with a member's rank.
const PodIndex = "POD_INDEX"

// Rank is the reference to a pod's rank in the arguments of an engine.
const Rank = "$(" + PodIndex + ")"

// roleWorker is the value of v1beta1.LabelGroupRole for workers.
const roleWorker = "worker"

// Group is the recorded state of a group's incarnation.
type Group struct {
	// Number is the number of the incarnation. The pods contain it, so a new number replaces them all.
	Number int64
	// NotBefore is the earliest time when its engines may start; zero means at once.
	NotBefore time.Time
	// Failures is the number of consecutive failures, and Failure a sentence about the last one.
	Failures int
	Failure  string
}

// Members are the pods of a group: one leader, and a worker on each other machine.
type Members struct {
	Nodes          int
	Leader, Worker corev1.PodTemplateSpec
}

// GroupSets returns the StatefulSets of a group, the leader's first. The controller replaces all of their pods
// together, so neither set replaces a pod on its own.
func GroupSets(ws *v1beta1.Workspace, members Members, revision string, group Group) []*appsv1.StatefulSet {
	first := groupSet(StatefulSet(ws, 1, members.Leader, revision), group)
	if group.Failures > 0 {
		first.Annotations[v1beta1.AnnotationGroupFailures] = strconv.Itoa(group.Failures)
		first.Annotations[v1beta1.AnnotationGroupFailure] = group.Failure
	}
	others := groupSet(StatefulSet(ws, int32(members.Nodes-1), members.Worker, revision), group)
	others.Name = WorkerName(ws)
	others.Spec.Selector.MatchLabels[v1beta1.LabelGroupRole] = roleWorker
	others.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
	return []*appsv1.StatefulSet{first, others}
}

func groupSet(set *appsv1.StatefulSet, group Group) *appsv1.StatefulSet {
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	annotations := map[string]string{v1beta1.AnnotationGroup: strconv.FormatInt(group.Number, 10)}
	if !group.NotBefore.IsZero() {
		annotations[v1beta1.AnnotationGroupNotBefore] = group.NotBefore.UTC().Format(time.RFC3339)
	}
	set.Spec.Template.Annotations = over(set.Spec.Template.Annotations, annotations)
	return set
}

// GroupOf reads the recorded state from the leader's StatefulSet. Without that StatefulSet, it returns the first
// incarnation.
func GroupOf(leader *appsv1.StatefulSet) Group {
	group := Group{Number: 1}
	if leader == nil {
		return group
	}
	if number, err := strconv.ParseInt(leader.Spec.Template.Annotations[v1beta1.AnnotationGroup], 10, 64); err == nil {
		group.Number = number
	}
	if at, err := time.Parse(time.RFC3339, leader.Spec.Template.Annotations[v1beta1.AnnotationGroupNotBefore]); err == nil {
		group.NotBefore = at
	}
	if failures, err := strconv.Atoi(leader.Annotations[v1beta1.AnnotationGroupFailures]); err == nil {
		group.Failures, group.Failure = failures, leader.Annotations[v1beta1.AnnotationGroupFailure]
	}
	return group
}
