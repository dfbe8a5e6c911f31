// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// The engines of a group execute anything that reaches their ports. So they start only after the controller, which is
// not a peer, has tried to reach the agents' port and failed. The controller writes this into an annotation, which the
// agents read.

// The annotation as a file in the pod.
const (
	volumePod     = "pod"
	podDir        = "/etc/modelberth/pod"
	isolationFile = "isolation"
)

// isolate labels the pods of a group for their NetworkPolicy, and marks them as held if they must wait.
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
		Items: []corev1.DownwardAPIVolumeFile{podFile(isolationFile, v1beta1.AnnotationIsolation)},
	}}}}
}

func isolationMounts(in Input) []corev1.VolumeMount {
	if !in.holds() {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumePod, MountPath: podDir, ReadOnly: true}}
}

// IsHeld reports whether a pod's engine waits until the controller finds its group isolated.
func IsHeld(pod *corev1.Pod) bool {
	return pod.Annotations[v1beta1.AnnotationIsolation] == v1beta1.IsolationRequired
}
