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
	// coalescer decides when mere progress is worth a write.
	coalescer *coalescer
	// expectations are the overwritten versions of Workspaces.
	expectations *stale.Expectations
}

// isUnwritten reports whether the attempts differ from those in the status.
func isUnwritten(s *scope.Scope) bool {
	return !equality.Semantic.DeepEqual(s.Workspace.Status.Attempts, []v1beta1.Attempt(s.Attempts))
}

// Persist writes changed attempts. Nothing is bought or released before the status has the reason. A pass over an old
// Workspace fails to write; Confirm stops a pass with nothing to write.
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

// Confirm returns a conflict unless this pass has the newest Workspace: a machine that came and went unseen would be
// requested again, and one of an unseen attempt would be released. A pass that has added the finalizer or written the
// attempts has it.
func (r *records) Confirm(ctx context.Context, s *scope.Scope) error {
	if s.IsPersisted || s.IsNew {
		return nil
	}
	return stale.Confirm(ctx, r.Live, s.Workspace)
}

// patchStatus writes the status over the one that was read, from which it was computed. It does not overwrite a newer
// one.
func (r *records) patchStatus(ctx context.Context, read, ws *v1beta1.Workspace) error {
	patch := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
	err := r.expectations.Write(ws, func() error { return r.Client.Status().Patch(ctx, ws, patch) })
	if err == nil {
		r.coalescer.wrote(ws.UID)
	}
	return err
}
