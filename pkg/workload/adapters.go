// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
)

// AdapterDir has a directory for each adapter, by its name.
const AdapterDir = "/mnt/adapter"

// Volumes for adapters: one for the agent's downloads, one for each volumeSource, and one with the credentials for
// private registries.
const (
	volumeAdapters   = "adapters"
	volumePullSecret = "pull-secret"
	pullSecretDir    = "/etc/modelberth/pull"
)

// Adapters returns a Workspace's adapters for the engine, in the order of the manifest.
func Adapters(ws *v1beta1.Workspace) []engine.Adapter {
	var out []engine.Adapter
	for _, spec := range ws.Inference.Adapters {
		out = append(out, engine.Adapter{
			Name: spec.Source.Name, Dir: path.Join(AdapterDir, spec.Source.Name), Path: spec.Path, Strength: strengthOf(spec),
		})
	}
	return out
}

// strengthOf returns the strength of an adapter; by default, it is as trained.
func strengthOf(spec v1beta1.AdapterSpec) float64 {
	if spec.Strength == nil {
		return 1
	}
	strength, _ := strconv.ParseFloat(*spec.Strength, 64) // admission ensures that this is a number
	return strength
}

// adapters returns the adapters with which the pod's engine starts.
func adapters(in Input) []v1beta1.AdapterSpec {
	if in.Engine.NoWeights || in.isLive() {
		return nil
	}
	return in.Workspace.Inference.Adapters
}

// isFetched reports whether the agent fetches an adapter. Otherwise, the adapter is on a volume of the user.
func isFetched(spec v1beta1.AdapterSpec) bool { return spec.Source.Volume == nil }

// adapterVolume returns the name of the volume of an adapter with a volumeSource. It contains the adapter's index,
// because an adapter's name may be too long for a volume.
func adapterVolume(index int) string { return fmt.Sprintf("adapter-%d", index) }

// adapterVolumes returns the volumes with adapters.
func adapterVolumes(adapters []v1beta1.AdapterSpec) []corev1.Volume {
	var list []corev1.Volume
	if slices.ContainsFunc(adapters, isFetched) {
		list = append(list, corev1.Volume{
			Name: volumeAdapters, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
	}
	for i, spec := range adapters {
		if !isFetched(spec) {
			list = append(list, corev1.Volume{Name: adapterVolume(i), VolumeSource: *spec.Source.Volume.DeepCopy()})
		}
	}
	return list
}

// pullVolumes returns the volume with the agent's credentials for private registries.
func pullVolumes(in Input) []corev1.Volume {
	name := pullSecret(in)
	if name == "" {
		return nil
	}
	return []corev1.Volume{{Name: volumePullSecret, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{
			SecretName: name,
			Items:      []corev1.KeyToPath{{Key: corev1.DockerConfigJsonKey, Path: "config.json"}},
		},
	}}}
}

// pullSecret returns the name of the Secret for artifacts that the agent pulls. Admission allows only one, because
// registry clients read one file.
func pullSecret(in Input) string {
	if from := source(in.Workspace); !in.Engine.NoWeights && from.OCI != nil && from.OCI.PullSecret != "" {
		return from.OCI.PullSecret
	}
	if in.Engine.NoWeights {
		return ""
	}
	return PullSecretOf(in.Workspace.Inference.Adapters)
}

// registryEnv sets the path of the registry credentials.
func registryEnv(in Input) []corev1.EnvVar {
	if pullSecret(in) == "" {
		return nil
	}
	return []corev1.EnvVar{{Name: "DOCKER_CONFIG", Value: pullSecretDir}}
}

// adapterMounts returns the engine's mounts. Each adapter has its own mount, even if several share a volume, because a
// mount inside another read-only mount is impossible.
func adapterMounts(adapters []v1beta1.AdapterSpec) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for i, spec := range adapters {
		mount := corev1.VolumeMount{Name: adapterVolume(i), MountPath: path.Join(AdapterDir, spec.Source.Name), ReadOnly: true}
		if isFetched(spec) {
			// The agent creates the directory before the engine starts.
			mount.Name, mount.SubPath = volumeAdapters, spec.Source.Name
		}
		mounts = append(mounts, mount)
	}
	return mounts
}

// fetchMounts returns the agent's mounts for adapters and for registry credentials.
func fetchMounts(in Input) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	if slices.ContainsFunc(adapters(in), isFetched) {
		mounts = append(mounts, corev1.VolumeMount{Name: volumeAdapters, MountPath: AdapterDir})
	}
	return append(mounts, pullMounts(in)...)
}

func pullMounts(in Input) []corev1.VolumeMount {
	if pullSecret(in) == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumePullSecret, MountPath: pullSecretDir, ReadOnly: true}}
}

// adapterArgs returns the agent's arguments for the adapters that it fetches.
func adapterArgs(in Input) []string {
	var args []string
	for _, spec := range adapters(in) {
		if !isFetched(spec) {
			continue
		}
		args = append(args, "fetch")
		if spec.Source.Image != "" {
			args = append(args, "--image", spec.Source.Image)
		} else {
			args = append(args, repositoryArgs(spec, in.Engine.AdapterFiles)...)
		}
		args = append(args, "--dest", path.Join(AdapterDir, spec.Source.Name), "--for", spec.Source.Name)
	}
	return args
}

// repositoryArgs returns arguments with an adapter's repository and its files for the engine.
func repositoryArgs(spec v1beta1.AdapterSpec, files engine.Selection) []string {
	repo, revision, _ := strings.Cut(spec.Source.Repository, "@")
	args := []string{"--repo", repo}
	if revision != "" {
		args = append(args, "--revision", revision)
	}
	if len(files.Weights) == 0 {
		return append(args, "--file", spec.Path)
	}
	for _, pattern := range files.Weights {
		args = append(args, "--weights", path.Join(spec.Path, pattern))
	}
	for _, pattern := range files.Others {
		args = append(args, "--include", path.Join(spec.Path, pattern))
	}
	return args
}
