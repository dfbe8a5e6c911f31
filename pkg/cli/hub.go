// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/hub/describe"
	"github.com/modelberth/modelberth/pkg/model"
)

// hubDescriber describes models from a hub.
type hubDescriber struct{ client *hub.Client }

// newHub returns a describer for the hub at an endpoint.
func newHub(endpoint, token string) (Describer, error) {
	client, err := hub.New(hub.Options{Endpoint: endpoint, Token: token, HTTP: hub.NewHTTPClient(1)})
	if err != nil {
		return nil, err
	}
	return hubDescriber{client}, nil
}

// Describe returns the hub's description of a model's main branch.
func (h hubDescriber) Describe(ctx context.Context, id string) (model.Model, []string, error) {
	d, err := describe.Inspect(ctx, h.client, id, "")
	return d.Model, d.Notes, err
}
