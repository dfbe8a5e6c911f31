// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// ModelPath returns the path of the model's files in the engine's container.
func ModelPath(ws *v1beta1.Workspace) string { return path.Join(ModelDir, source(ws).Path) }

// source returns the source of the weights; empty for the hub.
func source(ws *v1beta1.Workspace) v1beta1.WeightsSource {
	return ptr.Deref(ws.Inference.Weights, v1beta1.WeightsSource{})
}

// WeightsPlace returns a description of the weights' source for messages; empty for the hub.
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

// isMounted reports whether the files exist before the pod. Nothing writes to them, because other pods may use them.
func isMounted(in Input) bool {
	return !in.Engine.NoWeights && in.Workspace.Inference.Weights != nil && source(in.Workspace).OCI == nil
}

// modelsVolume returns the volume with the weights. If the pod fetches them, the volume has no size limit, because the
// limit of the agent's container covers all writes of the pod.
func modelsVolume(in Input) corev1.Volume {
	volume, from := corev1.VolumeSource{}, source(in.Workspace)
	switch {
	case !isMounted(in):
		volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
	case from.Image != nil:
		volume.Image = &corev1.ImageVolumeSource{Reference: from.Image.Reference, PullPolicy: from.Image.PullPolicy}
	case from.PersistentVolumeClaim != nil:
		// The attachment itself is read-only. Otherwise, the kubelet would change the group of all files to the pod's.
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: from.PersistentVolumeClaim.ClaimName, ReadOnly: true,
		}
	case from.HostPath != nil:
		volume.HostPath = &corev1.HostPathVolumeSource{Path: from.HostPath.Path, Type: new(corev1.HostPathDirectory)}
	}
	return corev1.Volume{Name: volumeModels, VolumeSource: volume}
}

// modelsMount returns the agent's mount of the weights.
func modelsMount(in Input) corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeModels, MountPath: ModelDir, ReadOnly: isMounted(in)}
}

// imagePullSecrets returns the Secret for a mounted image, which the kubelet pulls like the images of containers.
func imagePullSecrets(in Input) []corev1.LocalObjectReference {
	from := source(in.Workspace)
	if in.Engine.NoWeights || from.Image == nil || from.Image.PullSecret == "" {
		return nil
	}
	return []corev1.LocalObjectReference{{Name: from.Image.PullSecret}}
}

func hubArgs(in Input) []string {
	if in.Settings.HubEndpoint == "" {
		return nil
	}
	return []string{"--endpoint", in.Settings.HubEndpoint}
}

// hubToken returns the token from the user's Secret for an agent that fetches. The token is required: if the Secret or
// its key is missing, the pod names it, instead of a later refusal by the hub.
func hubToken(in Input) []corev1.EnvVar {
	preset := in.Workspace.Inference.Preset
	if in.Engine.NoWeights || preset == nil || preset.PresetOptions.ModelAccessSecret == "" {
		return nil
	}
	return []corev1.EnvVar{{
		Name: v1beta1.HubTokenKey,
		ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: preset.PresetOptions.ModelAccessSecret},
			Key:                  v1beta1.HubTokenKey,
		}},
	}}
}

// originArgs returns the arguments with the source of the weights.
func originArgs(in Input) []string {
	artifact, from := ptr.Deref(in.Plan.Artifact, model.Artifact{}), source(in.Workspace)
	switch {
	case in.Plan.Weights != nil:
		return []string{"--image", in.Plan.Weights.Reference}
	case from.OCI != nil:
		return []string{"--image", from.OCI.Reference}
	case artifact.Revision == "":
		return []string{"--repo", artifact.Repo}
	default:
		return []string{"--repo", artifact.Repo, "--revision", artifact.Revision}
	}
}
