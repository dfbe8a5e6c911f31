// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/progress"
)

// ClusterSupply checks before a purchase that the model's files are available from the Workspace's source, and that the
// endpoint's API key exists.
type ClusterSupply struct {
	Objects Objects
	// HostPaths are the directories of nodes that may hold weights; empty means none.
	HostPaths  []string
	Signatures Signatures
}

// Check returns the Workspace's credentials. The error is a *progress.StalledError if something is missing or not
// allowed.
func (c *ClusterSupply) Check(ctx context.Context, ws *v1beta1.Workspace, m model.Model) (Credentials, error) {
	if problem := c.Signatures.unverifiable(ws.Inference); problem != "" {
		return Credentials{}, notVerified(problem)
	}
	out, from := Credentials{}, ws.Inference.Weights
	if m.Gated && from == nil && ws.Inference.Preset.PresetOptions.ModelAccessSecret == "" {
		return out, &progress.StalledError{
			Reason: v1beta1.ReasonSecretNotFound,
			Message: fmt.Sprintf("model %s is gated: accept its licence on the hub, put a token into a Secret under the "+
				"key %s, and name it in inference.preset.presetOptions.modelAccessSecret", m.HubID, v1beta1.HubTokenKey),
		}
	}
	var err error
	if out.Token, err = hubToken(ctx, c.Objects, ws); err != nil {
		return out, err
	}
	if out.Registries, err = c.checkSource(ctx, ws); err != nil {
		return out, err
	}
	_, err = APIKey(ctx, c.Objects, ws)
	return out, err
}

// checkSource checks the source of the weights. It returns the credentials for its registry; empty if there are none.
func (c *ClusterSupply) checkSource(ctx context.Context, ws *v1beta1.Workspace) ([]byte, error) {
	from := ws.Inference.Weights
	switch {
	case from == nil:
		return nil, nil
	case from.OCI != nil:
		return c.pullSecret(ctx, ws, "inference.weights.oci.pullSecret", from.OCI.PullSecret)
	case from.Image != nil:
		return c.pullSecret(ctx, ws, "inference.weights.image.pullSecret", from.Image.PullSecret)
	case from.PersistentVolumeClaim != nil:
		return nil, c.checkClaim(ctx, ws, from.PersistentVolumeClaim.ClaimName)
	default:
		return nil, c.checkHostPath(from.HostPath.Path)
	}
}

func (c *ClusterSupply) pullSecret(ctx context.Context, ws *v1beta1.Workspace, field, name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	return secretKey(ctx, c.Objects, client.ObjectKey{Namespace: ws.Namespace, Name: name}, corev1.DockerConfigJsonKey,
		fmt.Sprintf("%s names Secret %q, which does not exist in namespace %q or lacks the key %s: create it with kubectl create secret docker-registry",
			field, name, ws.Namespace, corev1.DockerConfigJsonKey))
}

// checkClaim checks that a claim exists. Only a pod can read its content, and the scheduler waits until it is bound.
func (c *ClusterSupply) checkClaim(ctx context.Context, ws *v1beta1.Workspace, name string) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := c.Objects.Get(ctx, client.ObjectKey{Namespace: ws.Namespace, Name: name}, claim)
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
	return &progress.StalledError{
		Reason: v1beta1.ReasonClaimNotFound,
		Message: fmt.Sprintf("inference.weights names PersistentVolumeClaim %q, which %s in namespace %q: "+
			"create one with the model's files, or name another one", name, problem, ws.Namespace),
		RetryAfter: retrySecret,
	}
}

// checkHostPath rejects directories of nodes that the administrator does not allow.
func (c *ClusterSupply) checkHostPath(path string) error {
	isAllowed := slices.ContainsFunc(c.HostPaths, func(prefix string) bool {
		prefix = strings.TrimSuffix(prefix, "/")
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	})
	if isAllowed {
		return nil
	}
	which := "none are allowed"
	if len(c.HostPaths) > 0 {
		which = "allowed: " + strings.Join(c.HostPaths, ", ")
	}
	return progress.Invalid(fmt.Sprintf("inference.weights.hostPath.path is %q, which the administrator does not allow (chart value weights.hostPaths; %s): "+
		"use a persistentVolumeClaim, such as one of a local PersistentVolume", path, which))
}
