// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

func specInvalid(message string) error {
	return &stalledError{reason: v1beta1.ReasonSpecInvalid, message: message}
}

// config returns the text of the user's ConfigMap, or nothing if there is none.
func (r *Reconciler) config(ctx context.Context, ws *v1beta1.Workspace) (string, error) {
	name := ws.Inference.Config
	if name == "" {
		return "", nil
	}
	object := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return "", &stalledError{
			reason: v1beta1.ReasonConfigNotFound,
			message: fmt.Sprintf("inference.config names ConfigMap %q, which does not exist in namespace %q: "+
				"create it with the key %s", name, ws.Namespace, v1beta1.InferenceConfigKey),
		}
	}
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %q: %w", name, err)
	}
	text, ok := object.Data[v1beta1.InferenceConfigKey]
	if !ok {
		return "", &stalledError{
			reason: v1beta1.ReasonConfigInvalid,
			message: fmt.Sprintf("ConfigMap %q has no key %s: add it, or remove inference.config",
				name, v1beta1.InferenceConfigKey),
		}
	}
	return text, nil
}

// checkSecret says before anything is bought that the token for the hub is missing.
func (r *Reconciler) checkSecret(ctx context.Context, ws *v1beta1.Workspace, m model.Model) error {
	name := ws.Inference.Preset.PresetOptions.ModelAccessSecret
	if name == "" {
		if !m.Gated {
			return nil
		}
		return &stalledError{
			reason: v1beta1.ReasonSecretNotFound,
			message: fmt.Sprintf("model %s is gated: accept its licence on the hub, put a token into a Secret under the "+
				"key %s, and name it in inference.preset.presetOptions.modelAccessSecret", m.HubID, v1beta1.HubTokenKey),
		}
	}
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, secret)
	if missing := apierrors.IsNotFound(err); missing || (err == nil && len(secret.Data[v1beta1.HubTokenKey]) == 0) {
		return &stalledError{
			reason: v1beta1.ReasonSecretNotFound,
			message: fmt.Sprintf("modelAccessSecret names Secret %q, which must exist in namespace %q with the key %s",
				name, ws.Namespace, v1beta1.HubTokenKey),
			retryAfter: retrySecret,
		}
	}
	if err != nil {
		return fmt.Errorf("reading Secret %q: %w", name, err)
	}
	return nil
}
