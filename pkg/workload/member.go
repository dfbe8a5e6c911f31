// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// joinGroup keeps two members from running on the same machine. Requests for GPUs do not prevent that if a member uses
// only some of a machine's GPUs.
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

// Environment variables of the agent that identify members.
const (
	podUID      = "POD_UID"
	groupNumber = "GROUP"
	notBefore   = "NOT_BEFORE"
)

// memberArgs returns the agent's arguments for its group and for the engine's start. They must precede its targets.
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

// awaitArgs delays the leader's engine until its workers listen, if it would exit without them.
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

// groupEnv returns the environment variables with the agent's group and identity.
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
