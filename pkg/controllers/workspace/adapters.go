// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// A plan does not wait for the hub any longer than this: a rank that is not known is assumed. A repository
// that is not there may be a moment later.
const (
	hubDeadline  = 10 * time.Second
	retryAdapter = 5 * time.Minute
)

// adapterRanks are those that the hub tells of the Workspace's adapters.
func (r *Reconciler) adapterRanks(ctx context.Context, ws *v1beta1.Workspace) ([]int, error) {
	var repositories []string
	for _, adapter := range ws.Inference.Adapters {
		if adapter.Source.Repository != "" {
			repositories = append(repositories, adapter.Source.Repository)
		}
	}
	if len(repositories) == 0 || r.AdapterRanks == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, hubDeadline)
	defer cancel()
	ranks, err := r.AdapterRanks(ctx, repositories)
	if err != nil {
		return nil, &stalledError{
			reason:     v1beta1.ReasonSpecInvalid,
			message:    fmt.Sprintf("inference.adapters: %v: correct source.repository, or leave the adapter out", err),
			retryAfter: retryAdapter,
		}
	}
	return ranks, nil
}
