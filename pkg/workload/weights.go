// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
)

// The startup probe of the agent delays the engine until every file is verified. The agent itself fails if it makes no
// progress, so the probe is lenient: it fails only after two days.
const (
	weightsPeriod   = 2
	weightsFailures = 24 * 3600
)

// weightsContainer returns modelberth-agent as a native sidecar: an init container that keeps running.
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
		Env:                      slices.Concat(groupEnv(in), proxyEnv(in), hubToken(in), registryEnv(in), drainKey(in)),
		Ports:                    append([]corev1.ContainerPort{containerPort("weights", weightsPort)}, probePorts(in)...),
		Resources:                weightsResources(in),
		StartupProbe:             probe,
		SecurityContext:          containerSecurity(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: slices.Concat(
			[]corev1.VolumeMount{modelsMount(in)}, isolationMounts(in), authorityMounts(in), filledMounts(in), liveMounts(in),
			fetchMounts(in)),
	}
}

// agentArgs returns the agent's flags for the pod, and then those for each set of files.
func agentArgs(in Input) []string {
	listen := []string{"--listen", fmt.Sprintf(":%d", weightsPort)}
	return slices.Concat(listen, hubArgs(in), authorityArgs(in), cacheArgs(in), compiledArgs(in), unpackArgs(in), liveArgs(in),
		fetchArgs(in))
}

// unpackArgs limits the size of unpacked artifacts to the planned disk space.
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

// wantedArgs returns arguments with the files of the artifact. If it lists none, they are the files that the engine
// selects below a path.
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
