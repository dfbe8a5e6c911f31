// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Keep is the transform of a cache of pods: it leaves where a pod runs and may run, what it needs and what becomes of
// it, and drops what its containers are told and what they see, which is most of a pod and only for them.
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

// isNoCommit says that a variable does not name where a commit is kept.
func isNoCommit(v corev1.EnvVar) bool { return v.Name != keptCommit }
