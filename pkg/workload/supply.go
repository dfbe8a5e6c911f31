// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Weights are the administrator's settings of how pods come by the files of models.
type Weights struct {
	// CAConfigMap is the name of a ConfigMap in each Workspace's namespace, with certificate authorities in ca.crt.
	CAConfigMap string
	// HTTPSProxy and NoProxy have the meaning of the variables with these names.
	HTTPSProxy, NoProxy string
	// Caches are the PersistentVolumeClaims of shared caches by namespace: never one for two namespaces, because a
	// file fetched with a token is readable without one.
	Caches map[string]string
	// CacheLimitGiB bounds each cache; 0 leaves it to its volume.
	CacheLimitGiB int
	// CacheVerifyWhole has a file of a cache hashed as a whole at each use.
	CacheVerifyWhole bool
}

// If the agent finds authorities and cache. The cache is at the same place for the engine, for links lead there.
const (
	volumeAuthorities = "authorities"
	volumeCache       = "weights-cache"
	authoritiesDir    = "/etc/modelberth/authorities"
	weightsCacheDir   = "/cache"
	authoritiesKey    = "ca.crt"
)

func authorityArgs(in Input) []string {
	if in.Settings.Weights.CAConfigMap == "" {
		return nil
	}
	return []string{"--ca-file", authoritiesDir + "/" + authoritiesKey}
}

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
	return append(args, compiledArgs(in)...)
}

func supplyEnv(in Input) []corev1.EnvVar {
	var env []corev1.EnvVar
	for _, v := range []corev1.EnvVar{
		{Name: "HTTPS_PROXY", Value: literal(in.Settings.Weights.HTTPSProxy)},
		{Name: "NO_PROXY", Value: literal(in.Settings.Weights.NoProxy)},
	} {
		if v.Value != "" {
			env = append(env, v)
		}
	}
	return env
}

func supplyVolumes(in Input) []corev1.Volume {
	var list []corev1.Volume
	if name := in.Settings.Weights.CAConfigMap; name != "" {
		list = append(list, corev1.Volume{Name: volumeAuthorities, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
				// If it is missing the agent says so, in the Workspace's status; the kubelet would only wait.
				Optional: new(true),
			},
		}})
	}
	if claim := cacheClaim(in); claim != "" {
		list = append(list, corev1.Volume{Name: volumeCache, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return list
}

func authorityMounts(in Input) []corev1.VolumeMount {
	if in.Settings.Weights.CAConfigMap == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeAuthorities, MountPath: authoritiesDir, ReadOnly: true}}
}

// supplyMounts are those of the agent.
func supplyMounts(in Input) []corev1.VolumeMount {
	mounts := authorityMounts(in)
	if cacheClaim(in) != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: volumeCache, MountPath: weightsCacheDir})
	}
	return mounts
}

// cacheMounts are those of the engine.
func cacheMounts(in Input) []corev1.VolumeMount {
	if cacheClaim(in) == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeCache, MountPath: weightsCacheDir, ReadOnly: true}}
}

// cacheClaim is empty without a cache, and for a member that reads no files.
func cacheClaim(in Input) string {
	if in.Engine.NoWeights {
		return ""
	}
	return in.Settings.Weights.Caches[in.Workspace.Namespace]
}
