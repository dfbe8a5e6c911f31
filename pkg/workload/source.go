// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ModelPath is where the engine finds the model's files.
func ModelPath(ws *v1beta1.Workspace) string { return path.Join(ModelDir, source(ws).Path) }

// source is where the weights come from; all empty for the hub.
func source(ws *v1beta1.Workspace) v1beta1.WeightsSource {
	return ptr.Deref(ws.Inference.Weights, v1beta1.WeightsSource{})
}

// WeightsPlace is what to call the place in a sentence that the weights come from; empty for the hub.
func WeightsPlace(ws *v1beta1.Workspace) string {
	switch from := source(ws); {
	case from.OCI != nil:
		return "artifact " + from.OCI.Reference
	case from.Image != nil:
		return "image " + from.Image.Reference
	case from.PersistentVolumeClaim != nil:
		return "PersistentVolumeClaim " + from.PersistentVolumeClaim.ClaimName
	case from.HostPath != nil:
		return from.HostPath.Path + " of the node"
	default:
		return ""
	}
}

// isMounted says that the files are there before the pod is. Nothing is written to them: they are others' too.
func isMounted(in Input) bool {
	return !in.Engine.NoWeights && in.Workspace.Inference.Weights != nil && source(in.Workspace).OCI == nil
}

// modelsVolume holds the weights. One that is filled in the pod has no size limit of its own: that of the agent's
// container bounds all that the pod writes.
func modelsVolume(in Input) corev1.Volume {
	volume, from := corev1.VolumeSource{}, source(in.Workspace)
	switch {
	case !isMounted(in):
		volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
	case from.Image != nil:
		volume.Image = &corev1.ImageVolumeSource{Reference: from.Image.Reference, PullPolicy: from.Image.PullPolicy}
	case from.PersistentVolumeClaim != nil:
		// Read-only already where it is attached: otherwise the kubelet would give all files to the pod's group.
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: from.PersistentVolumeClaim.ClaimName, ReadOnly: true,
		}
	case from.HostPath != nil:
		volume.HostPath = &corev1.HostPathVolumeSource{Path: from.HostPath.Path, Type: new(corev1.HostPathDirectory)}
	}
	return corev1.Volume{Name: volumeModels, VolumeSource: volume}
}

// modelsMount is the agent's.
func modelsMount(in Input) corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeModels, MountPath: ModelDir, ReadOnly: isMounted(in)}
}

// imagePullSecrets are for an image that is mounted: the kubelet pulls it, as it pulls those of containers.
func imagePullSecrets(in Input) []corev1.LocalObjectReference {
	from := source(in.Workspace)
	if in.Engine.NoWeights || from.Image == nil || from.Image.PullSecret == "" {
		return nil
	}
	return []corev1.LocalObjectReference{{Name: from.Image.PullSecret}}
}
