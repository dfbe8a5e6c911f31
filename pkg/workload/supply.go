// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
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

// Authorities in the agent's container.
const (
	volumeAuthorities = "authorities"
	authoritiesDir    = "/etc/modelberth/authorities"
	authoritiesKey    = "ca.crt"
)

func authorityArgs(in Input) []string {
	if in.Settings.Weights.CAConfigMap == "" {
		return nil
	}
	return []string{"--ca-file", authoritiesDir + "/" + authoritiesKey}
}

// proxyEnv names the proxy of an agent that fetches.
func proxyEnv(in Input) []corev1.EnvVar {
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

func authorityVolumes(in Input) []corev1.Volume {
	name := in.Settings.Weights.CAConfigMap
	if name == "" {
		return nil
	}
	return []corev1.Volume{{Name: volumeAuthorities, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name},
			// If it is missing the agent says so, in the Workspace's status; the kubelet would only wait.
			Optional: new(true),
		},
	}}}
}

func authorityMounts(in Input) []corev1.VolumeMount {
	if in.Settings.Weights.CAConfigMap == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeAuthorities, MountPath: authoritiesDir, ReadOnly: true}}
}
