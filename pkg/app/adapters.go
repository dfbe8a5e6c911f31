// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/hub/describe"
)

// hubPatience is how long the hub may take for a small file.
const hubPatience = 5 * time.Second

// adapterRanks reads the ranks of adapters from a hub without a token: no Workspace's token is available here.
func adapterRanks(endpoint string) (func(context.Context, []string) ([]int, error), error) {
	client, err := hub.New(hub.Options{
		Endpoint: endpoint, HTTP: hub.NewHTTPClient(2), UserAgent: "modelberth-controller",
		AnswerTimeout: hubPatience, IdleTimeout: hubPatience,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the hub's client: %w", err)
	}
	return func(ctx context.Context, repositories []string) ([]int, error) {
		return describe.AdapterRanks(ctx, client, repositories)
	}, nil
}
