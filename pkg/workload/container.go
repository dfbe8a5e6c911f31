// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelberth/modelberth/api/v1beta1"
	live "github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/engine"
)

// Probes of the engine. A large model takes tens of minutes to load from a slow disk. The startup probe allows an hour,
// because it cannot distinguish a slow engine from a stuck one. After that, the kubelet restarts an engine that fails
// its health check for 90 seconds.
const (
	startupPeriod     = 2
	startupFailures   = 1800
	readinessPeriod   = 5
	readinessFailures = 3
	livenessPeriod    = 15
	livenessFailures  = 6
	probeTimeout      = 10
)

// engineContainer returns the container of the inference server. It has the name of the Workspace, as existing tools
// expect.
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
		// The last lines of the log show why an engine ended.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeModels, MountPath: ModelDir, ReadOnly: true},
			{Name: volumeTmp, MountPath: tmpDir},
			{Name: volumeShm, MountPath: shmDir},
		},
	}
	container.VolumeMounts = slices.Concat(container.VolumeMounts, cacheMounts(in), compiledMounts(in), adapterMounts(adapters(in)))
	if in.isLive() {
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: volumeAdapters, MountPath: AdapterDir, ReadOnly: true})
	}
	probe(&container, in.Engine)
	if in.Workspace.Inference.Config != "" {
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: volumeConfig, MountPath: ConfigDir, ReadOnly: true})
	}
	return container
}

// probe adds probes to an engine. A serving engine has health checks. A worker has only a startup probe, which succeeds
// once the worker listens. It gets no later probes, because it accepts only the leader, one connection at a time, and
// the agents report lost members.
func probe(container *corev1.Container, command engine.Command) {
	switch {
	case command.HealthPath != "":
		container.StartupProbe = healthProbe(command, startupPeriod, startupFailures)
		container.ReadinessProbe = healthProbe(command, readinessPeriod, readinessFailures)
		if command.LoopbackPort > 0 {
			container.ReadinessProbe.HTTPGet.Path = live.ReadyPath
		}
		container.LivenessProbe = healthProbe(command, livenessPeriod, livenessFailures)
	case command.OpenPort > 0:
		container.StartupProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(command.OpenPort)}},
			PeriodSeconds: startupPeriod, FailureThreshold: startupFailures, TimeoutSeconds: probeTimeout,
		}
	}
}

// engineEnv returns the engine's environment variables. HOME is a writable directory unless the user sets it. A member
// of a group also gets its rank, which users cannot set.
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

func healthProbe(command engine.Command, period, failures int32) *corev1.Probe {
	probe := httpProbe(command.HealthPath, v1beta1.EnginePort)
	probe.PeriodSeconds = period
	probe.FailureThreshold = failures
	probe.TimeoutSeconds = probeTimeout
	return probe
}
