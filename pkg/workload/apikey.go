// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// apiKey returns the environment variable with the endpoint's key, for a serving member. The variable is required: an
// engine must not start without its user's key.
func apiKey(in Input, variable string) []corev1.EnvVar {
	secret := in.Workspace.Inference.APIKeySecretName()
	if secret == "" || variable == "" || in.Engine.HealthPath == "" {
		return nil
	}
	return []corev1.EnvVar{{
		Name: variable,
		ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: secret},
			Key:                  v1beta1.APIKeyKey,
		}},
	}}
}
