// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// checkSupply says before anything is bought that a model's files cannot be had from where the Workspace says.
func (r *Reconciler) checkSupply(ctx context.Context, ws *v1beta1.Workspace, m model.Model) error {
	from := ws.Inference.Weights
	m.Gated = m.Gated && from == nil // another source asks for no licence
	if err := r.checkSigned(ws.Inference); err != nil {
		return err
	}
	if err := r.checkSecret(ctx, ws, m); err != nil || from == nil {
		return err
	}
	switch {
	case from.OCI != nil:
		return r.checkPullSecret(ctx, ws, "inference.weights.oci.pullSecret", from.OCI.PullSecret)
	case from.Image != nil:
		return r.checkPullSecret(ctx, ws, "inference.weights.image.pullSecret", from.Image.PullSecret)
	case from.PersistentVolumeClaim != nil:
		return r.checkClaim(ctx, ws, from.PersistentVolumeClaim.ClaimName)
	default:
		return r.checkHostPath(from.HostPath.Path)
	}
}

func (r *Reconciler) checkPullSecret(ctx context.Context, ws *v1beta1.Workspace, field, name string) error {
	if name == "" {
		return nil
	}
	return r.requireSecret(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, corev1.DockerConfigJsonKey,
		fmt.Sprintf("%s names Secret %q, which must exist in namespace %q with the key %s: kubectl create secret docker-registry",
			field, name, ws.Namespace, corev1.DockerConfigJsonKey))
}

// checkClaim looks whether a claim exists. What it holds only its pod can see; one that is bound later is
// waited for by the scheduler.
func (r *Reconciler) checkClaim(ctx context.Context, ws *v1beta1.Workspace, name string) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, claim)
	var problem string
	switch {
	case apierrors.IsNotFound(err):
		problem = "does not exist"
	case err != nil:
		return fmt.Errorf("reading PersistentVolumeClaim %q: %w", name, err)
	case !claim.DeletionTimestamp.IsZero():
		problem = "is being deleted"
	case claim.Status.Phase == corev1.ClaimLost:
		problem = "has lost its volume"
	default:
		return nil
	}
	return &stalledError{
		reason: v1beta1.ReasonClaimNotFound,
		message: fmt.Sprintf("inference.weights names PersistentVolumeClaim %q, which %s in namespace %q: "+
			"create one with the model's files, or name another one", name, problem, ws.Namespace),
		retryAfter: retrySecret,
	}
}

// checkHostPath keeps pods out of the nodes' directories but for those that the administrator names.
func (r *Reconciler) checkHostPath(path string) error {
	allowed := r.Limits.HostPaths
	isAllowed := slices.ContainsFunc(allowed, func(prefix string) bool {
		prefix = strings.TrimSuffix(prefix, "/")
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	})
	if isAllowed {
		return nil
	}
	which := "none are allowed"
	if len(allowed) > 0 {
		which = "allowed: " + strings.Join(allowed, ", ")
	}
	return specInvalid(fmt.Sprintf("inference.weights.hostPath.path is %q, which the administrator does not allow (chart value weights.hostPaths; %s): "+
		"use a persistentVolumeClaim, such as one of a local PersistentVolume", path, which))
}
