// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Keep is the transform for a cache of pods. It keeps the fields for placement, resources and status. It drops the
// arguments and mounts of containers, which are the largest part of a pod.
func Keep(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Spec.Volumes = nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			from := &containers[i]
			containers[i] = corev1.Container{
				Name: from.Name, Image: from.Image, Resources: from.Resources, RestartPolicy: from.RestartPolicy,
				StartupProbe: from.StartupProbe, Env: slices.Clone(slices.DeleteFunc(from.Env, isNoCommit)),
			}
		}
	}
	return pod, nil
}

// isNoCommit reports whether a variable is any other than keptCommit.
func isNoCommit(v corev1.EnvVar) bool { return v.Name != keptCommit }
