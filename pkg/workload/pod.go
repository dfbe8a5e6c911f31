// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Names of the pod's volumes, and their mounts.
const (
	volumeModels = "models"
	volumeTmp    = "tmp"
	volumeShm    = "shm"
	volumeConfig = "config"
	tmpDir       = "/tmp"
	shmDir       = "/dev/shm"
)

// PodTemplate returns the pod of a preset Workspace. It combines the user's inference.pod, defaults for unset fields,
// and our own fields, which take precedence.
func PodTemplate(in Input) corev1.PodTemplateSpec {
	users := in.Workspace.Inference.Pod.DeepCopy()
	if users == nil {
		users = &v1beta1.PodSpec{}
	}
	template := usersBand(users)
	joinGroup(in, &template)
	template.Spec.TerminationGracePeriodSeconds = new(ptr.Deref(users.TerminationGracePeriodSeconds, defaultGracePeriod))
	template.Labels = over(template.Labels, labels(in.Workspace))
	isolate(in, &template)
	awaitAdapters(in, &template)
	place(in.Workspace, in.Plan.NodeNames, &template)
	template.Spec.InitContainers = append(commitContainer(in), weightsContainer(in))
	template.Spec.Containers = []corev1.Container{engineContainer(in, users)}
	template.Spec.Volumes = volumes(in)
	template.Spec.ImagePullSecrets = imagePullSecrets(in)
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if in.Engine.IgnoresSignals {
		// Process 1 is then the sandbox's, so the engine ends at once when it gets a signal.
		template.Spec.ShareProcessNamespace = new(true)
	}
	template.Spec.SecurityContext = podSecurity(in.UserID)
	// No container uses the API server. Service links would set environment variables with the name of a Service, and
	// engines would read those that begin with their own name.
	template.Spec.AutomountServiceAccountToken = new(false)
	template.Spec.EnableServiceLinks = new(false)
	return template
}

func volumes(in Input) []corev1.Volume {
	shm := gibibytes(sharedMemoryGiB(in))
	list := []corev1.Volume{
		modelsVolume(in),
		{Name: volumeTmp, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: volumeShm, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: &shm,
		}}},
	}
	list = slices.Concat(list, isolationVolumes(in), authorityVolumes(in), cacheVolumes(in), adapterVolumes(adapters(in)),
		liveVolumes(in), pullVolumes(in))
	if in.Workspace.Inference.Config == "" {
		return list
	}
	return append(list, corev1.Volume{Name: volumeConfig, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: in.Workspace.Inference.Config}},
	}})
}

// WorkerTemplate returns the pod for all machines except the first. Only the engine's command is different.
func WorkerTemplate(in Input) corev1.PodTemplateSpec {
	in.Engine = *in.Worker
	template := PodTemplate(in)
	template.Labels[v1beta1.LabelGroupRole] = roleWorker
	return template
}
