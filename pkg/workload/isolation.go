// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// The engines of a group execute anything that reaches their ports. They wait until the controller, which is not a
// peer, has failed to reach the agents' port. It writes that into an annotation, and the agents read it.

// The annotation as a file.
const (
	volumePod     = "pod"
	podDir        = "/etc/modelberth/pod"
	isolationFile = "isolation"
)

// isolate marks the pods of a group for their NetworkPolicy, and as held back.
func isolate(in Input, template *corev1.PodTemplateSpec) {
	if in.isGroup() {
		template.Labels[v1beta1.LabelPeers] = string(in.Workspace.UID)
	}
	if in.holds() {
		template.Annotations = over(template.Annotations, map[string]string{v1beta1.AnnotationIsolation: v1beta1.IsolationRequired})
	}
}

func isolationArgs(in Input) []string {
	if !in.holds() {
		return nil
	}
	hold := fmt.Sprintf("%s/%s=%s", podDir, isolationFile, v1beta1.IsolationRequired)
	return []string{"--probe-listen", fmt.Sprintf(":%d", ProbePort), "--hold-while", hold}
}

func probePorts(in Input) []corev1.ContainerPort {
	if !in.holds() {
		return nil
	}
	return []corev1.ContainerPort{containerPort("probe", ProbePort)}
}

func isolationVolumes(in Input) []corev1.Volume {
	if !in.holds() {
		return nil
	}
	return []corev1.Volume{{Name: volumePod, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{
			Path: isolationFile,
			FieldRef: &corev1.ObjectFieldSelector{
				APIVersion: "v1", FieldPath: "metadata.annotations['" + v1beta1.AnnotationIsolation + "']",
			},
		}},
	}}}}
}

func isolationMounts(in Input) []corev1.VolumeMount {
	if !in.holds() {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumePod, MountPath: podDir, ReadOnly: true}}
}

// IsHeld reports whether a pod's engine waits until its group is found isolated.
func IsHeld(pod *corev1.Pod) bool {
	return pod.Annotations[v1beta1.AnnotationIsolation] == v1beta1.IsolationRequired
}
