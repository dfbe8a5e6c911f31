// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
)

// weightsPort is the agent's port for its progress. In a group, only peers may reach it.
const weightsPort = 8090

// The startup probe of the agent holds the engine back until every file is verified. The agent gives
// up by itself when nothing moves any more, so the probe has no opinion: it would take two days to
// fail.
const (
	weightsPeriod   = 2
	weightsFailures = 24 * 3600
)

// weightsContainer is modelberth-agent as a native sidecar: an init container that keeps running.
func weightsContainer(in Input) corev1.Container {
	probe := httpProbe("/startupz", weightsPort)
	probe.PeriodSeconds = weightsPeriod
	probe.FailureThreshold = weightsFailures
	probe.TimeoutSeconds = probeTimeout
	return corev1.Container{
		Name:                     WeightsContainer(in.Workspace.Name),
		Image:                    in.Settings.AgentImage,
		ImagePullPolicy:          corev1.PullPolicy(in.Settings.ImagePullPolicy),
		RestartPolicy:            ptr.To(corev1.ContainerRestartPolicyAlways),
		Args:                     append(memberArgs(in), literals(slices.Concat(agentArgs(in), adapterArgs(in)))...),
		Env:                      slices.Concat(groupEnv(in), supplyEnv(in), hubToken(in), registryEnv(in), drainKey(in)),
		Ports:                    append([]corev1.ContainerPort{containerPort("weights", weightsPort)}, probePorts(in)...),
		Resources:                weightsResources(in),
		StartupProbe:             probe,
		SecurityContext:          containerSecurity(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: slices.Concat(
			[]corev1.VolumeMount{modelsMount(in)}, isolationMounts(in), supplyMounts(in), fetchMounts(in)),
	}
}

// agentArgs are the flags of the pod, then those of each set of files.
func agentArgs(in Input) []string {
	listen := []string{"--listen", fmt.Sprintf(":%d", weightsPort)}
	return slices.Concat(listen, hubArgs(in), authorityArgs(in), cacheArgs(in), unpackArgs(in), fetchArgs(in))
}

func hubArgs(in Input) []string {
	if in.Settings.HubEndpoint == "" {
		return nil
	}
	return []string{"--endpoint", in.Settings.HubEndpoint}
}

// unpackArgs limit unpacked artifacts to the disk in the plan.
func unpackArgs(in Input) []string {
	isArtifact := func(spec v1beta1.AdapterSpec) bool { return isFetched(spec) && spec.Source.Image != "" }
	fetchesWeights := !in.Engine.NoWeights && source(in.Workspace).OCI != nil
	if in.Plan.DiskGiB == 0 || !fetchesWeights && !slices.ContainsFunc(adapters(in), isArtifact) {
		return nil
	}
	return []string{"--unpack-limit-gib", strconv.Itoa(in.Plan.DiskGiB)}
}

func fetchArgs(in Input) []string {
	if in.Engine.NoWeights {
		return nil
	}
	args := append([]string{"fetch", "--dest", ModelDir}, originArgs(in)...)
	if isMounted(in) {
		args = []string{"verify", "--dest", ModelDir, "--place", WeightsPlace(in.Workspace)}
	}
	artifact := ptr.Deref(in.Plan.Artifact, model.Artifact{})
	return append(args, wantedArgs(artifact, in.Engine.Weights, source(in.Workspace).Path)...)
}

// originArgs name the source of the weights.
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

// wantedArgs name the files of the artifact or, if it lists none, the engine's, below a path.
func wantedArgs(artifact model.Artifact, selection engine.Selection, below string) []string {
	var args []string
	each := func(flag string, values []string) {
		for _, value := range values {
			args = append(args, flag, path.Join(below, value))
		}
	}
	if len(artifact.Files) == 0 {
		each("--weights", selection.Weights)
		each("--include", selection.Others)
		each("--exclude", selection.Except)
		return args
	}
	for _, file := range artifact.Files {
		each("--file", []string{file.Path})
	}
	for _, file := range artifact.Files {
		if file.SHA256 != "" {
			each("--sha256", []string{file.Path + "=" + file.SHA256})
		}
	}
	return args
}

// hubToken passes the token of the user's Secret to a fetching agent. It is not optional: without it the pod names
// the missing Secret or key, instead of a later refusal by the hub.
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

// weightsResources include the disk for weights and image, because the agent fills it. If it fetches weights, that
// is also the limit of the pod's volumes, logs and layers: the kubelet evicts a pod if its source is larger than
// planned. The node's images do not count, so their planned share is a reserve.
func weightsResources(in Input) corev1.ResourceRequirements {
	out := agentResources()
	if in.Plan.DiskGiB == 0 {
		return out
	}
	out.Requests[corev1.ResourceEphemeralStorage] = gibibytes(in.Plan.DiskGiB)
	if !in.Engine.NoWeights && !isMounted(in) {
		out.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: gibibytes(in.Plan.DiskGiB + archivesGiB(in))}
	}
	return out
}

func agentResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("128Mi"),
	}}
}

// archivesGiB is the disk for archives besides their unpacked contents; no plan counts it.
func archivesGiB(in Input) int {
	if source(in.Workspace).OCI == nil || in.Plan.Artifact == nil {
		return 0
	}
	return int((in.Plan.Artifact.Bytes() + 1<<30 - 1) >> 30)
}
