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

// hubPatience is the time limit for a small file from the hub.
const hubPatience = 5 * time.Second

// adapterRanks returns a function that reads the ranks of adapters from a hub. It sends no token, because no
// Workspace's token is available here.
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
