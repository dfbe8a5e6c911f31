// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
)

// Weights are the administrator's settings for how pods get model files.
type Weights struct {
	// CAConfigMap is the name of a ConfigMap in each Workspace's namespace, with certificate authorities in ca.crt.
	CAConfigMap string
	// HTTPSProxy and NoProxy are the values of the environment variables HTTPS_PROXY and NO_PROXY.
	HTTPSProxy, NoProxy string
	// Caches are the PersistentVolumeClaims of shared caches by namespace. No two namespaces share a cache: a file that
	// was fetched with a token is readable without one.
	Caches map[string]string
	// CacheLimitGiB is the size limit of each cache in GiB; 0 means that only its volume limits it.
	CacheLimitGiB int
	// CacheVerifyWhole makes the agent hash a whole cached file at each use.
	CacheVerifyWhole bool
}

// Certificate authorities in the agent's container.
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

// proxyEnv returns the proxy settings of an agent that fetches.
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
			// If the ConfigMap is missing, the agent reports that in the Workspace's status. The kubelet would only wait.
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
