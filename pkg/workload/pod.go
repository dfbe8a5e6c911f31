// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
)

// defaultGracePeriod lets running requests finish. The engine ends them a little earlier than the kubelet ends the
// engine, so it exits by itself.
const (
	defaultGracePeriod = 120
	gracePeriodMargin  = 10
)

// shmPerGPU is the default shared memory in GiB for the exchange of tensors between an engine's processes.
const shmPerGPU = 1

// Drain is how long answers under way may take once the pod is told to end.
func Drain(ws *v1beta1.Workspace) time.Duration {
	seconds := int64(defaultGracePeriod)
	if ws.Inference != nil && ws.Inference.Pod != nil {
		seconds = ptr.Deref(ws.Inference.Pod.TerminationGracePeriodSeconds, seconds)
	}
	return time.Duration(max(0, seconds-gracePeriodMargin)) * time.Second
}

// Names of the pod's volumes, and their mounts.
const (
	volumeModels = "models"
	volumeTmp    = "tmp"
	volumeShm    = "shm"
	volumeConfig = "config"
	tmpDir       = "/tmp"
	shmDir       = "/dev/shm"
)

// PodTemplate returns the pod of a preset Workspace. It has three bands: the user's inference.pod, defaults for
// unset fields, and ours on top.
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
	place(in.Workspace, in.Plan.NodeNames, &template)
	template.Spec.InitContainers = append(commitContainer(in), weightsContainer(in))
	template.Spec.Containers = []corev1.Container{engineContainer(in, users)}
	template.Spec.Volumes = volumes(in)
	template.Spec.ImagePullSecrets = imagePullSecrets(in)
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if in.Engine.IgnoresSignals {
		// Process 1 is the sandbox's then, and the engine ends at once when it is told to.
		template.Spec.ShareProcessNamespace = new(true)
	}
	template.Spec.SecurityContext = podSecurity(in.UserID)
	// Neither container uses the API server, and engines read variables with their name as a prefix: a Service of
	// that name would set them.
	template.Spec.AutomountServiceAccountToken = new(false)
	template.Spec.EnableServiceLinks = new(false)
	return template
}

func usersBand(users *v1beta1.PodSpec) corev1.PodTemplateSpec {
	var template corev1.PodTemplateSpec
	template.Labels, template.Annotations = usersOwn(users.Labels), usersOwn(users.Annotations)
	template.Spec = corev1.PodSpec{
		Tolerations:               users.Tolerations,
		TopologySpreadConstraints: users.TopologySpreadConstraints,
		PriorityClassName:         users.PriorityClassName,
		SchedulerName:             users.SchedulerName,
		RuntimeClassName:          users.RuntimeClassName,
		ServiceAccountName:        users.ServiceAccountName,
	}
	if users.NodeAffinity != nil {
		template.Spec.Affinity = &corev1.Affinity{NodeAffinity: users.NodeAffinity}
	}
	return template
}

// podSecurity is Pod Security's level restricted, together with containerSecurity.
func podSecurity(uid int64) *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot:        new(true),
		RunAsUser:           new(uid),
		RunAsGroup:          new(uid),
		FSGroup:             new(uid),
		FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func containerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func sharedMemoryGiB(in Input) int {
	if in.Engine.SharedMemoryGiB > 0 {
		return in.Engine.SharedMemoryGiB
	}
	return max(1, in.Plan.GPUsPerNode*shmPerGPU)
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
	list = slices.Concat(list, isolationVolumes(in), supplyVolumes(in), adapterVolumes(adapters(in)), pullVolumes(in))
	if in.Workspace.Inference.Config == "" {
		return list
	}
	return append(list, corev1.Volume{Name: volumeConfig, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: in.Workspace.Inference.Config}},
	}})
}

// arguments of an engine: a user's text stays literal, and the renderer's references to variables stay references.
func arguments(command engine.Command) []string {
	list := literals(command.Args)
	for _, at := range command.References {
		list[at] = command.Args[at]
	}
	return list
}

// literal keeps the kubelet from reading $(NAME) in arguments and variables as a reference.
func literal(s string) string {
	return strings.ReplaceAll(s, "$", "$$")
}

func literals(list []string) []string {
	escaped := make([]string, len(list))
	for i, s := range list {
		escaped[i] = literal(s)
	}
	return escaped
}
