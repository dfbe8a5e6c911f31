// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"

	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

// ensureCapacity gets the machines of the accepted plan, or those of the next best, and decides what the pods run
// meanwhile.
func (r *Reconciler) ensureCapacity(ctx context.Context, s *scope.Scope) error {
	s.CapacityErr = classify(r.executor.Acquire(ctx, s))
	r.executor.DecidePods(s)
	if s.ServingAttempt() != nil {
		return s.ServeOn(s.CapacityErr)
	}
	return s.CapacityErr
}
