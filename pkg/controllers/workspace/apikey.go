// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/request"
)

// apiKey returns the key that the Workspace's endpoint asks for; empty where it names no Secret. A key that engines
// cannot use stalls the Workspace before anything is bought.
func (r *Reconciler) apiKey(ctx context.Context, ws *v1beta1.Workspace) (string, error) {
	name := ws.Inference.APIKeySecretName()
	if name == "" {
		return "", nil
	}
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading Secret %q: %w", name, err)
	}
	message := fmt.Sprintf("inference.engine.apiKeySecret names Secret %q, which must exist in namespace %q with the key %s: ",
		name, ws.Namespace, v1beta1.APIKeyKey)
	key := secret.Data[v1beta1.APIKeyKey]
	switch problem := request.APIKeyProblem(key); {
	case err != nil:
		message += "the Secret does not exist"
	case problem != "":
		message += v1beta1.APIKeyKey + " " + problem
	default:
		return string(key), nil
	}
	return "", &stalledError{reason: v1beta1.ReasonSecretNotFound, message: message, retryAfter: retrySecret}
}
