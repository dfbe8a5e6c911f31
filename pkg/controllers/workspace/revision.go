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

// A plan names its verified weights and the demands of its day. After a change of the requirements, a serving model
// continues; no machine is bought and no pod starts before the weights are verified again
// (docs/adr/0014-verified-weights.md).

// ensureVerified verifies the weights of a stored revision again before something begins with it under other demands. The
// error is a *progress.StalledError if they cannot be verified, and the revision is not the accepted one.
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
	return progress.Behind("revision") // another pass has pinned its own under that name
}

// noteUnverified notes why nothing may begin with the revision. A revision serving from held machines begins nothing.
func (r *Reconciler) noteUnverified(ctx context.Context, s *scope.Scope) error {
	if s.IsRunning(s.Revision) && (s.IsOnNodes() || s.Attempts.Suffice(s.Machines, &s.Revision.Revision)) {
		return nil
	}
	var err error
	s.Revision.Unverified, err = r.planning.Weights.Unverified(ctx, s.Spec, &s.Revision.Plan)
	return err
}

// ensureCommit keeps the commit of the weights.
func (r *Reconciler) ensureCommit(ctx context.Context, s *scope.Scope) error {
	return commits.Ensure(ctx, r.Client, s.Workspace, s.Pods, s.Revisions)
}
