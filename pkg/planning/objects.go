// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
)

// Config returns the text of a Workspace's ConfigMap; empty if the Workspace names none. The error is a
// *progress.StalledError if the ConfigMap or its key does not exist.
func Config(ctx context.Context, from Objects, ws *v1beta1.Workspace) (string, error) {
	name := ws.Inference.Config
	if name == "" {
		return "", nil
	}
	object := &corev1.ConfigMap{}
	err := from.Get(ctx, client.ObjectKey{Namespace: ws.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return "", &progress.StalledError{
			Reason: v1beta1.ReasonConfigNotFound,
			Message: fmt.Sprintf("inference.config names ConfigMap %q, which does not exist in namespace %q: "+
				"create it with the key %s", name, ws.Namespace, v1beta1.InferenceConfigKey),
		}
	}
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %q: %w", name, err)
	}
	text, ok := object.Data[v1beta1.InferenceConfigKey]
	if !ok {
		return "", &progress.StalledError{
			Reason: v1beta1.ReasonConfigInvalid,
			Message: fmt.Sprintf("ConfigMap %q has no key %s: add it, or remove inference.config",
				name, v1beta1.InferenceConfigKey),
		}
	}
	return text, nil
}

// APIKey returns the API key of the Workspace's endpoint; empty if the Workspace names no Secret. The error is a
// *progress.StalledError if the Secret is missing, or if engines cannot use the key.
func APIKey(ctx context.Context, from Objects, ws *v1beta1.Workspace) (string, error) {
	name := ws.Inference.APIKeySecretName()
	if name == "" {
		return "", nil
	}
	secret := &corev1.Secret{}
	err := from.Get(ctx, client.ObjectKey{Namespace: ws.Namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading Secret %q: %w", name, err)
	}
	message := fmt.Sprintf("inference.engine.apiKeySecret names Secret %q", name)
	key := secret.Data[v1beta1.APIKeyKey]
	switch problem := request.APIKeyProblem(key); {
	case err != nil:
		message += fmt.Sprintf(", which does not exist in namespace %q: create it with the key %s", ws.Namespace, v1beta1.APIKeyKey)
	case problem != "":
		message += fmt.Sprintf(" of namespace %q, but its key %s %s", ws.Namespace, v1beta1.APIKeyKey, problem)
	default:
		return string(key), nil
	}
	return "", &progress.StalledError{Reason: v1beta1.ReasonSecretNotFound, Message: message, RetryAfter: retrySecret}
}

// secretKey returns the value of a key in a Secret. If the Secret or the value is missing, the error is a
// *progress.StalledError with problem as its message.
func secretKey(ctx context.Context, from Objects, name client.ObjectKey, key, problem string) ([]byte, error) {
	secret := &corev1.Secret{}
	err := from.Get(ctx, name, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Secret %q: %w", name.Name, err)
	}
	if value := secret.Data[key]; err == nil && len(value) > 0 {
		return value, nil
	}
	return nil, &progress.StalledError{Reason: v1beta1.ReasonSecretNotFound, Message: problem, RetryAfter: retrySecret}
}

// configMapKey returns the value of a key in a ConfigMap; empty if the ConfigMap or the key is missing.
func configMapKey(ctx context.Context, from Objects, name client.ObjectKey, key string) (string, error) {
	object := &corev1.ConfigMap{}
	err := client.IgnoreNotFound(from.Get(ctx, name, object))
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %q: %w", name.Name, err)
	}
	return object.Data[key], nil
}
