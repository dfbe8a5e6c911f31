// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
)

// records writes the statuses of Workspaces.
type records struct {
	Client  client.Client
	Live    client.Reader
	Events  record.EventRecorder
	Metrics *meter.Metrics
	Lessons *lessons.Lessons
	// coalescer decides when to write a status that shows only progress.
	coalescer *coalescer
	// expectations holds the versions of Workspaces that this process has overwritten.
	expectations *stale.Expectations
}

// isUnwritten reports whether the attempts of the pass differ from the attempts in the status.
func isUnwritten(s *scope.Scope) bool {
	return !equality.Semantic.DeepEqual(s.Workspace.Status.Attempts, []v1beta1.Attempt(s.Attempts))
}

// Persist writes changed attempts to the status. Nothing is bought or released before the status has the reason.
// The write fails if the pass has an outdated Workspace; if there is nothing to write, Confirm makes that check.
func (r *records) Persist(ctx context.Context, s *scope.Scope) error {
	if !isUnwritten(s) {
		return nil
	}
	before := s.Workspace.DeepCopy()
	s.Workspace.Status.Attempts = s.Attempts.Clone()
	if err := r.patchStatus(ctx, before, s.Workspace); err != nil {
		s.Workspace.Status.Attempts = before.Status.Attempts
		r.Lessons.Unanswered(err, lessons.Asker(s.Workspace), before.Status.Attempts, s.Attempts)
		return fmt.Errorf("recording the attempts: %w", err)
	}
	s.IsPersisted = true
	emit(r.Events, s.Workspace, status.Refusals(before.Status.Attempts, s.Attempts))
	r.Lessons.Note(lessons.Asker(s.Workspace), before.Status.Attempts, s.Attempts)
	r.Metrics.Waste(s.Wasted)
	s.Wasted = 0
	return nil
}

// Confirm returns a conflict unless this pass has the newest Workspace. With an outdated one, the pass would
// request a machine again that came and went unseen, and release a machine of an unseen attempt. A pass that has
// added the finalizer or written the attempts has the newest Workspace.
func (r *records) Confirm(ctx context.Context, s *scope.Scope) error {
	if s.IsPersisted || s.IsNew {
		return nil
	}
	return stale.Confirm(ctx, r.Live, s.Workspace)
}

// patchStatus writes the status. The write fails if the Workspace has changed since read, the version from which
// the status was computed.
func (r *records) patchStatus(ctx context.Context, read, ws *v1beta1.Workspace) error {
	patch := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
	err := r.expectations.Write(ws, func() error { return r.Client.Status().Patch(ctx, ws, patch) })
	if err == nil {
		r.coalescer.wrote(ws.UID)
	}
	return err
}
