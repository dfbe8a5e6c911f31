// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/pkg/controllers/workspace/commits"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
)

// A plan records its verified weights and the requirements at that time. After a change of the requirements, a
// serving model continues. But the controller buys no machine and starts no pod until it has verified the weights
// again (docs/adr/0014-verified-weights.md).

// ensureVerified verifies the weights of a stored revision again if the requirements have changed and the
// revision needs new machines or pods. It returns a *progress.StalledError if it cannot verify the weights of a
// revision that is not accepted yet.
func (r *Reconciler) ensureVerified(ctx context.Context, s *scope.Scope, in render.Inputs) error {
	err := r.noteUnverified(ctx, s)
	if err != nil || s.Revision.Unverified == "" {
		return err
	}
	ask, err := r.executor.Choice(s).Ask()
	if err != nil {
		return err
	}
	made, err := r.planning.Verify(ctx, ask, s.Revision)
	if stalled, ok := errors.AsType[*progress.StalledError](err); ok && s.IsAccepted(s.Revision) {
		s.Revision.Unverified = stalled.Message
		return nil
	}
	if err == nil {
		err = r.records.Confirm(ctx, s)
	}
	if err != nil {
		return err
	}
	if s.Revision, err = r.pins.create(ctx, s, in, made, fallbackRevision); err != nil {
		return err
	}
	log.FromContext(ctx).Info("the weights of a stored plan were verified again", "plan", s.Revision.Plan.Summary())
	if err := r.noteUnverified(ctx, s); err != nil || s.Revision.Unverified == "" {
		return err
	}
	return progress.Behind("revision") // another pass has pinned its own revision under that name
}

// noteUnverified notes in the revision why it must not get new machines or pods. A revision that already serves from
// its machines needs neither.
func (r *Reconciler) noteUnverified(ctx context.Context, s *scope.Scope) error {
	if s.IsRunning(s.Revision) && (s.IsOnNodes() || s.Attempts.Suffice(s.Machines, &s.Revision.Revision)) {
		return nil
	}
	var err error
	s.Revision.Unverified, err = r.planning.Weights.Unverified(ctx, s.Spec, &s.Revision.Plan)
	return err
}

// ensureCommit stores the commit of the weights for later pods.
func (r *Reconciler) ensureCommit(ctx context.Context, s *scope.Scope) error {
	return commits.Ensure(ctx, r.Client, s.Workspace, s.Pods, s.Revisions)
}
