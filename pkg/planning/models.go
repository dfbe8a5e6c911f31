// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/hub/describe"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
)

// Hub describes models outside the catalogue at a revision, and returns the commit of a file.
type Hub interface {
	Describe(ctx context.Context, repo, revision, token string) (describe.Description, error)
	Commit(ctx context.Context, f hub.File, token string) (string, error)
}

// ClusterModels finds the models of Workspaces in a cluster: in the catalogue, or on the hub with the Workspace's
// token.
type ClusterModels struct {
	Catalog Catalog
	// Hub is nil if the administrator does not allow the hub.
	Hub     Hub
	Objects Objects
}

// Model returns a Workspace's model. The error is a *progress.StalledError if the model cannot be found.
func (c *ClusterModels) Model(ctx context.Context, ws *v1beta1.Workspace, commit string) (model.Model, []string, error) {
	name := ws.Inference.Preset.Name
	known, err := c.Catalog.ResolveModel(name)
	if err == nil {
		return known, nil, nil
	}
	if !strings.Contains(name, "/") {
		return known, nil, Classify(err)
	}
	if c.Hub == nil {
		said := err.Error()
		if ws.Inference.Weights != nil {
			said += "; inference.weights names the model's files, but the plan also needs its architecture"
		}
		return known, nil, &progress.StalledError{
			Reason: v1beta1.ReasonUnknownPreset,
			Message: said + "; have the administrator add it to the catalogue (chart value catalog), or let the controller " +
				"query the hub for such models (chart value hub.describe)",
		}
	}
	token, err := hubToken(ctx, c.Objects, ws)
	if err != nil {
		return known, nil, err
	}
	found, err := c.Hub.Describe(ctx, name, commit, token)
	if err != nil {
		return known, nil, &progress.StalledError{Reason: v1beta1.ReasonModelNotDescribed, Message: err.Error(), RetryAfter: retryHub}
	}
	return request.Sized(found.Model, c.Catalog), found.Notes, nil
}

// hubToken returns the token in the Workspace's Secret; empty if the Workspace names no Secret.
func hubToken(ctx context.Context, from Objects, ws *v1beta1.Workspace) (string, error) {
	name := ws.Inference.Preset.PresetOptions.ModelAccessSecret
	if name == "" {
		return "", nil
	}
	token, err := secretKey(ctx, from, client.ObjectKey{Namespace: ws.Namespace, Name: name}, v1beta1.HubTokenKey,
		fmt.Sprintf("modelAccessSecret names Secret %q, which does not exist in namespace %q or lacks the key %s: create it",
			name, ws.Namespace, v1beta1.HubTokenKey))
	return strings.TrimSpace(string(token)), err
}
