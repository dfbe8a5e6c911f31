// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/request"
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

// model finds what the Workspace names: in the catalogue, else on the hub, where the administrator lets the
// controller ask it. The commit that the Workspace was planned for is asked for again.
func (r *Reconciler) model(ctx context.Context, s *scope) (model.Model, []string, error) {
	name := s.spec.Inference.Preset.Name
	known, err := r.Catalog.ResolveModel(name)
	if err == nil {
		return known, nil, nil
	}
	if !strings.Contains(name, "/") {
		return known, nil, planError(err)
	}
	if r.Hub == nil {
		said := err.Error()
		if s.spec.Inference.Weights != nil {
			said += "; inference.weights names its files, but the plan also needs its architecture"
		}
		return known, nil, &stalledError{
			reason: v1beta1.ReasonUnknownPreset,
			message: said + "; have the administrator add it to the catalogue (chart value catalog), or let the controller " +
				"query the hub for such models (chart value hub.describe)",
		}
	}
	token, err := r.hubToken(ctx, s.spec)
	if err != nil {
		return known, nil, err
	}
	commit := ""
	if s.revision != nil && s.revision.Plan.Artifact != nil && s.revision.Plan.Artifact.Repo == name {
		commit = s.revision.Plan.Artifact.Revision
	}
	found, err := r.Hub.Describe(ctx, name, commit, token)
	if err != nil {
		return known, nil, &stalledError{reason: v1beta1.ReasonModelNotDescribed, message: err.Error(), retryAfter: retryHub}
	}
	return request.Sized(found.Model, r.Catalog), found.Notes, nil
}

// hubToken is what the Secret holds that the Workspace names; empty where it names none. That it is missing
// is said by checkSecret.
func (r *Reconciler) hubToken(ctx context.Context, ws *v1beta1.Workspace) (string, error) {
	name := ws.Inference.Preset.PresetOptions.ModelAccessSecret
	if name == "" {
		return "", nil
	}
	if err := r.checkSecret(ctx, ws, model.Model{}); err != nil {
		return "", err
	}
	secret := &corev1.Secret{}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, secret); err != nil {
		return "", fmt.Errorf("reading Secret %q: %w", name, err)
	}
	return strings.TrimSpace(string(secret.Data[v1beta1.HubTokenKey])), nil
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
	return r.requireSecret(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, v1beta1.HubTokenKey,
		fmt.Sprintf("modelAccessSecret names Secret %q, which must exist in namespace %q with the key %s",
			name, ws.Namespace, v1beta1.HubTokenKey))
}

// requireSecret returns the problem where a Secret does not exist, or has nothing under a key.
func (r *Reconciler) requireSecret(ctx context.Context, name types.NamespacedName, key, problem string) error {
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, name, secret)
	if missing := apierrors.IsNotFound(err); missing || (err == nil && len(secret.Data[key]) == 0) {
		return &stalledError{reason: v1beta1.ReasonSecretNotFound, message: problem, retryAfter: retrySecret}
	}
	if err != nil {
		return fmt.Errorf("reading Secret %q: %w", name.Name, err)
	}
	return nil
}
