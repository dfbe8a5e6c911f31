// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// The cache has the same path in the agent and in the engine, because symbolic links point to it.
const (
	volumeCache     = "weights-cache"
	weightsCacheDir = "/cache"
)

func cacheArgs(in Input) []string {
	if cacheClaim(in) == "" {
		return nil
	}
	args := []string{"--cache", weightsCacheDir}
	if limit := in.Settings.Weights.CacheLimitGiB; limit > 0 {
		args = append(args, "--cache-limit-gib", strconv.Itoa(limit))
	}
	if in.Settings.Weights.CacheVerifyWhole {
		args = append(args, "--cache-verify-whole")
	}
	return args
}

func cacheVolumes(in Input) []corev1.Volume {
	claim := cacheClaim(in)
	if claim == "" {
		return nil
	}
	return []corev1.Volume{{Name: volumeCache, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
}

// filledMounts returns the mount of the agent, which fills the cache.
func filledMounts(in Input) []corev1.VolumeMount {
	if cacheClaim(in) == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeCache, MountPath: weightsCacheDir}}
}

// cacheMounts returns the mount of the engine.
func cacheMounts(in Input) []corev1.VolumeMount {
	if cacheClaim(in) == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeCache, MountPath: weightsCacheDir, ReadOnly: true}}
}

// cacheClaim returns the name of the cache's PersistentVolumeClaim. It is empty if there is no cache, or if the member
// reads no files.
func cacheClaim(in Input) string {
	if in.Engine.NoWeights {
		return ""
	}
	return in.Settings.Weights.Caches[in.Workspace.Namespace]
}
