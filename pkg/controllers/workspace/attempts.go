// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
)

// begin opens an attempt for a plan, with the node class of its machines.
func (r *Reconciler) begin(s *scope, made *revision, number int32, names []string, start time.Time) {
	s.attempts.Begin(r.snapshot(s).NewAttempt(planOf(made), number, names, start))
}

// end closes the open attempt, if there is one.
func (s *scope) end(verdict refusal.Verdict, now time.Time) {
	if open := s.openAttempt(); open != nil {
		acquire.Close(open, verdict, s.ws.Generation, now)
	}
}

// isUnwritten reports whether the attempts differ from those in the status.
func (s *scope) isUnwritten() bool {
	return !equality.Semantic.DeepEqual(s.ws.Status.Attempts, []v1beta1.Attempt(s.attempts))
}

// persist writes changed attempts. Nothing is bought or released before the status has the reason. A pass over an old
// Workspace fails to write; confirm stops a pass with nothing to write.
func (r *Reconciler) persist(ctx context.Context, s *scope) error {
	if !s.isUnwritten() {
		return nil
	}
	before := s.ws.DeepCopy()
	s.ws.Status.Attempts = s.attempts.Clone()
	if err := r.patchStatus(ctx, before, s.ws); err != nil {
		s.ws.Status.Attempts = before.Status.Attempts
		r.lessons.Unanswered(err, lessons.Asker(s.ws), before.Status.Attempts, s.attempts)
		return fmt.Errorf("writing the attempts down: %w", err)
	}
	s.persisted = true
	emit(r.Events, s.ws, status.Refusals(before.Status.Attempts, s.attempts))
	r.lessons.Note(lessons.Asker(s.ws), before.Status.Attempts, s.attempts)
	r.Metrics.Waste(s.wasted)
	s.wasted = 0
	return nil
}

// confirm returns a conflict unless this pass has the newest Workspace. A pass that has added the finalizer or
// written the attempts has it.
func (r *Reconciler) confirm(ctx context.Context, s *scope) error {
	if s.persisted || s.isNew {
		return nil
	}
	return r.checkNewest(ctx, s)
}

// checkNewest returns a conflict if the Workspace has been written since this pass read it. Otherwise a machine that
// came and went unseen would be requested again, and one of an unseen attempt would be released.
func (r *Reconciler) checkNewest(ctx context.Context, s *scope) error {
	newest := &v1beta1.Workspace{}
	if err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(s.ws), newest)); err != nil {
		return fmt.Errorf("reading the newest version: %w", err)
	}
	if newest.ResourceVersion != s.ws.ResourceVersion {
		return apierrors.NewConflict(v1beta1.GroupVersion().WithResource("workspaces").GroupResource(), s.ws.Name,
			errors.New("it has been written since this pass read it"))
	}
	return nil
}
