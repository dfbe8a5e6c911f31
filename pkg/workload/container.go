// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
)

// Names of the engine's ports.
const (
	portHTTP     = "http"
	portKVEvents = "kv-events"
	portGroup    = "group"
)

// Probes of the engine. Loading a large model from a slow disk takes tens of minutes, and slow looks like stuck
// from outside, so the startup probe allows an hour. After that, an engine that does not answer its health check
// for 90 seconds is restarted.
const (
	startupPeriod     = 2
	startupFailures   = 1800
	readinessPeriod   = 5
	readinessFailures = 3
	livenessPeriod    = 15
	livenessFailures  = 6
	probeTimeout      = 10
)

// engineContainer is the inference server. Its name is the Workspace's, as existing tools expect.
func engineContainer(in Input, users *v1beta1.PodSpec) corev1.Container {
	container := corev1.Container{
		Name:            in.Workspace.Name,
		Image:           in.Image,
		ImagePullPolicy: corev1.PullPolicy(in.Settings.ImagePullPolicy),
		Command:         literals(in.Engine.Entrypoint),
		Args:            arguments(in.Engine),
		Env:             engineEnv(in),
		Ports:           enginePorts(in.Engine),
		Resources:       engineResources(in, users),
		Lifecycle:       drained(),
		SecurityContext: containerSecurity(),
		// The last lines of its log tell why an engine ended.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeModels, MountPath: ModelDir, ReadOnly: true},
			{Name: volumeTmp, MountPath: tmpDir},
			{Name: volumeShm, MountPath: shmDir},
		},
	}
	container.VolumeMounts = slices.Concat(container.VolumeMounts, cacheMounts(in), compiledMounts(in), adapterMounts(adapters(in)))
	probe(&container, in.Engine)
	if in.Workspace.Inference.Config != "" {
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: volumeConfig, MountPath: ConfigDir, ReadOnly: true})
	}
	return container
}

// probe checks the health of a serving engine. A worker has started once it listens. It gets no further checks,
// because it accepts only the leader, one connection at a time, and the agents report lost members.
func probe(container *corev1.Container, command engine.Command) {
	switch {
	case command.HealthPath != "":
		container.StartupProbe = healthProbe(command, startupPeriod, startupFailures)
		container.ReadinessProbe = healthProbe(command, readinessPeriod, readinessFailures)
		container.LivenessProbe = healthProbe(command, livenessPeriod, livenessFailures)
	case command.OpenPort > 0:
		container.StartupProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(command.OpenPort)}},
			PeriodSeconds: startupPeriod, FailureThreshold: startupFailures, TimeoutSeconds: probeTimeout,
		}
	}
}

// drained has the agent wait until no request is under way before the engine is told to end.
func drained() *corev1.Lifecycle {
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/drain", Port: intstr.FromInt32(weightsPort)},
	}}
}

// engineEnv gives the engine a writable home, unless the user sets another one. A member of a group also gets its
// rank, and users cannot set that.
func engineEnv(in Input) []corev1.EnvVar {
	users := in.Engine.Env
	env := make([]corev1.EnvVar, 0, len(users)+1)
	if in.isGroup() {
		env = append(env, fromPod(PodIndex, "metadata.labels['"+appsv1.PodIndexLabel+"']"))
		users = slices.DeleteFunc(slices.Clone(users), func(v engine.EnvVar) bool { return v.Name == PodIndex })
	}
	if !slices.ContainsFunc(users, func(v engine.EnvVar) bool { return v.Name == "HOME" }) {
		env = append(env, corev1.EnvVar{Name: "HOME", Value: tmpDir})
	}
	for _, variable := range users {
		env = append(env, corev1.EnvVar{Name: variable.Name, Value: literal(variable.Value)})
	}
	return append(env, apiKey(in, in.APIKeyVariable)...)
}

func enginePorts(command engine.Command) []corev1.ContainerPort {
	var ports []corev1.ContainerPort
	if command.HealthPath != "" {
		ports = append(ports, containerPort(portHTTP, v1beta1.EnginePort))
	}
	if command.OpenPort > 0 {
		ports = append(ports, containerPort(portGroup, int32(command.OpenPort)))
	}
	if command.KVEventsPort > 0 {
		ports = append(ports, containerPort(portKVEvents, int32(command.KVEventsPort)))
	}
	return ports
}

func containerPort(name string, port int32) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: port, Protocol: corev1.ProtocolTCP}
}

// engineResources requests the plan's resources, or the user's. GPUs and devices for RDMA have equal requests and
// limits, as device plugins require. Main memory is limited if the node also runs other pods.
func engineResources(in Input, users *v1beta1.PodSpec) corev1.ResourceRequirements {
	requests := corev1.ResourceList{}
	if in.Plan.CPUs > 0 {
		requests[corev1.ResourceCPU] = *resource.NewQuantity(int64(in.Plan.CPUs), resource.DecimalSI)
	}
	if in.Plan.MemoryGiB > 0 {
		requests[corev1.ResourceMemory] = gibibytes(in.Plan.MemoryGiB)
	}
	if users.CPU != nil {
		requests[corev1.ResourceCPU] = users.CPU.DeepCopy()
	}
	if users.Memory != nil {
		requests[corev1.ResourceMemory] = users.Memory.DeepCopy()
	}
	limits := corev1.ResourceList{}
	if in.Plan.GPUsPerNode > 0 {
		limits[corev1.ResourceName(in.Plan.GPUResource)] = *resource.NewQuantity(int64(in.Plan.GPUsPerNode), resource.DecimalSI)
	}
	if rdma := in.Settings.RDMA; in.Plan.GPUsPerNode > 0 && in.Settings.ServesRDMA(&in.Plan) {
		limits[corev1.ResourceName(rdma.Resource)] = *resource.NewQuantity(int64(rdma.Count), resource.DecimalSI)
	}
	maps.Copy(requests, limits)
	if limit := memoryLimit(in, requests); limit != nil {
		limits[corev1.ResourceMemory] = *limit
	}
	if len(limits) == 0 {
		return corev1.ResourceRequirements{Requests: requests}
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// memoryLimit keeps an engine from taking the memory of other pods on its node; nil if the machine is the model's
// own. Shared memory counts as the container's.
func memoryLimit(in Input, requests corev1.ResourceList) *resource.Quantity {
	limit, isRequested := requests[corev1.ResourceMemory]
	if isOwn := len(in.Plan.NodeNames) == 0 && !in.Settings.SharedNodes; isOwn || !isRequested {
		return nil
	}
	limit = limit.DeepCopy()
	limit.Add(gibibytes(in.MemoryBurstGiB + sharedMemoryGiB(in)))
	return &limit
}

func gibibytes(n int) resource.Quantity {
	return *resource.NewQuantity(int64(n)<<30, resource.BinarySI)
}

func healthProbe(command engine.Command, period, failures int32) *corev1.Probe {
	probe := httpProbe(command.HealthPath, v1beta1.EnginePort)
	probe.PeriodSeconds = period
	probe.FailureThreshold = failures
	probe.TimeoutSeconds = probeTimeout
	return probe
}

func httpProbe(path string, port int32) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)},
	}}
}
