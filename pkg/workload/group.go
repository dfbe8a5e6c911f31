// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// If several machines serve one model, their pods are a group: all of them work, or none does. One set runs the
// leader, which has rank 0 and answers. Another one runs the workers, whose ordinals start at 1: the index of every
// pod is its rank.

// PodIndex is the variable with a member's rank.
const PodIndex = "POD_INDEX"

// Rank is the reference to the pod's rank in an engine's arguments.
const Rank = "$(" + PodIndex + ")"

// roleWorker is the value of v1beta1.LabelGroupRole.
const roleWorker = "worker"

// Variables of the agent that identify members.
const (
	podUID      = "POD_UID"
	groupNumber = "GROUP"
	notBefore   = "NOT_BEFORE"
)

// Group is the recorded state from one group to the next.
type Group struct {
	// Number tells one group from the next. It is written into the pods: another one replaces them all.
	Number int64
	// NotBefore is when its engines may start at the earliest; zero for at once.
	NotBefore time.Time
	// Failures in a row, and a sentence about the last one.
	Failures int
	Failure  string
}

// isGroup reports whether several machines serve the model.
func (in Input) isGroup() bool { return in.Worker != nil }

// WorkerTemplate returns the pod of the machines but the first: the same in all but the engine's command.
func WorkerTemplate(in Input) corev1.PodTemplateSpec {
	in.Engine = *in.Worker
	template := PodTemplate(in)
	template.Labels[v1beta1.LabelGroupRole] = roleWorker
	return template
}

// joinGroup keeps two members off one machine. Requests for GPUs do not ensure that if a member uses fewer of them
// than a machine has.
func joinGroup(in Input, template *corev1.PodTemplateSpec) {
	if !in.isGroup() {
		return
	}
	if template.Spec.Affinity == nil {
		template.Spec.Affinity = &corev1.Affinity{}
	}
	template.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: podSelector(in.Workspace)},
			TopologyKey:   corev1.LabelHostname,
		}},
	}
}

// Members are the pods of a group: one leader, and workers on all of its other machines.
type Members struct {
	Nodes          int
	Leader, Worker corev1.PodTemplateSpec
}

// GroupSets return the sets of a group, the leader's first. The controller replaces their pods together, so neither
// set replaces one by itself.
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

// GroupOf reads the recorded state from the leader's set; without one, it is the first group.
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

// memberArgs are the agent's settings for its group and for the engine's start. They precede its targets.
func memberArgs(in Input) []string {
	var args []string
	if in.isGroup() {
		args = append(args, "--group", "$("+groupNumber+")", "--not-before", "$("+notBefore+")", "--peer", LeaderAddress(in.Workspace))
		workers := WorkerAddresses(in.Workspace, in.Plan.Nodes)
		for _, worker := range workers {
			args = append(args, "--peer", worker)
		}
		args = slices.Concat(args, awaitArgs(in, workers), isolationArgs(in))
	}
	return append(args, drainArgs(in)...)
}

// awaitArgs delay the leader's engine until its workers listen, if it would end without them.
func awaitArgs(in Input, workers []string) []string {
	if in.Engine.HealthPath == "" || in.Worker.OpenPort == 0 {
		return nil
	}
	var args []string
	for _, worker := range workers {
		args = append(args, "--await", fmt.Sprintf("%s:%d", worker, in.Worker.OpenPort))
	}
	return args
}

// drainArgs are the agent's settings to detect running requests. A worker follows its leader.
func drainArgs(in Input) []string {
	var args []string
	patience := Drain(in.Workspace)
	switch {
	case patience == 0:
		return nil
	case in.Engine.HealthPath == "":
		args = append(args, "--drain-leader", LeaderAddress(in.Workspace))
	case len(in.Engine.BusyMetrics) == 0:
		return nil
	default:
		args = append(args, "--drain-metrics", fmt.Sprintf("http://127.0.0.1:%d/metrics", v1beta1.EnginePort))
		for _, name := range in.Engine.BusyMetrics {
			args = append(args, "--drain-busy", name)
		}
	}
	return append(args, "--drain-timeout", patience.String())
}

// groupEnv has the agent's group and rank.
func groupEnv(in Input) []corev1.EnvVar {
	if !in.isGroup() {
		return nil
	}
	return []corev1.EnvVar{
		fromPod(podUID, "metadata.uid"),
		fromPod(groupNumber, "metadata.annotations['"+v1beta1.AnnotationGroup+"']"),
		fromPod(notBefore, "metadata.annotations['"+v1beta1.AnnotationGroupNotBefore+"']"),
	}
}

func fromPod(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
	}}
}
