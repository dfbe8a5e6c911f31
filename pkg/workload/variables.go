// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/pkg/engine"
)

// arguments returns an engine's arguments. Text from a user stays literal, and the renderer's references to variables
// stay references.
func arguments(command engine.Command) []string {
	list := literals(command.Args)
	for _, at := range command.References {
		list[at] = command.Args[at]
	}
	return list
}

// literal escapes a text so that the kubelet does not read $(NAME) in it as a reference.
func literal(s string) string {
	return strings.ReplaceAll(s, "$", "$$")
}

func literals(list []string) []string {
	escaped := make([]string, len(list))
	for i, s := range list {
		escaped[i] = literal(s)
	}
	return escaped
}

// fromPod returns an environment variable with the value of a field of the pod.
func fromPod(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
	}}
}
