// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/workload"
)

// checkSpec refuses what admission refuses as well, for objects that were stored without it, and
// what this version cannot do.
func checkSpec(ws *v1beta1.Workspace) error {
	switch {
	case ws.Tuning != nil && ws.Inference != nil, ws.Tuning == nil && ws.Inference == nil:
		return specInvalid("exactly one of inference and tuning must be set")
	case ws.Tuning != nil:
		return &stalledError{
			reason: v1beta1.ReasonTuningNotAvailable,
			message: "tuning is not available in this version; nothing is bought. " +
				"Delete this Workspace, or keep it until a version with tuning is installed",
		}
	case ws.Inference.TemplateError != "":
		return specInvalid("inference.template cannot be read: " + ws.Inference.TemplateError)
	case (ws.Inference.Preset == nil) == (ws.Inference.Template == nil):
		return specInvalid("exactly one of inference.preset and inference.template must be set")
	case ws.Inference.Template != nil && len(ws.Inference.Template.Spec.Containers) == 0:
		return specInvalid("inference.template.spec.containers is empty: name at least one container")
	}
	if problem := workload.NameProblem(ws.Name); problem != "" {
		return specInvalid(problem)
	}
	return checkResource(&ws.Resource)
}

func checkResource(resource *v1beta1.ResourceSpec) error {
	switch {
	case resource.EffectiveNodeSource() == v1beta1.NodeSourceExisting:
		return &stalledError{
			reason: v1beta1.ReasonNotSupported,
			message: "this Workspace asks for existing nodes (a labelSelector without an instanceType, or " +
				"resource.placement.nodeSource Existing), which this version cannot use: no machine is bought for it. " +
				"Make it again with resource.instanceType, or with resource.placement.nodeSource Provisioned",
		}
	case resource.Partition != nil:
		return &stalledError{
			reason: v1beta1.ReasonNotSupported,
			message: "resource.partition shares the GPUs of existing nodes, which this version cannot use: " +
				"no machine is bought for it. Make the Workspace again without resource.partition",
		}
	case resource.Placement == nil || resource.Placement.MaxHourlyPrice == "":
		return nil
	}
	if limit, err := strconv.ParseFloat(resource.Placement.MaxHourlyPrice, 64); err != nil || limit <= 0 {
		return specInvalid(fmt.Sprintf("resource.placement.maxHourlyPrice is %q, which buys nothing: "+
			"give a price above 0 in USD per hour, or set suspend", resource.Placement.MaxHourlyPrice))
	}
	return nil
}

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
