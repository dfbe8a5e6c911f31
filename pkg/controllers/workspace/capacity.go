// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
)

// ensureCapacity acquires the machines of the accepted plan, or of the next best plan, and decides which revision
// the pods run meanwhile.
func (r *Reconciler) ensureCapacity(ctx context.Context, s *scope.Scope) error {
	s.CapacityErr = classify(r.executor.Acquire(ctx, s))
	r.executor.DecidePods(s)
	if s.ServingAttempt() != nil {
		return r.serveOn(s, s.CapacityErr)
	}
	return s.CapacityErr
}

// serveOn lets the pass go on with the serving pods although further machines cannot be bought. It turns a wait
// or a stall into a later pass, and returns any other error.
func (r *Reconciler) serveOn(s *scope.Scope, err error) error {
	var after time.Duration
	if wait, ok := errors.AsType[*progress.WaitingError](err); ok {
		if after = wait.After; wait.IsBrief {
			after = r.backoff.Next(client.ObjectKeyFromObject(s.Workspace), r.Clock.Now())
		}
	} else if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
		after = stalled.RetryAfter
	} else {
		return err
	}
	if after > 0 {
		s.LookAgain(after)
	}
	return nil
}
