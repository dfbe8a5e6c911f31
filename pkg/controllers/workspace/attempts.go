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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
)

// begin opens an attempt for a plan, with the node class that its machines are bought with.
func (r *Reconciler) begin(s *scope, made *revision, number int32, names []string, start time.Time) {
	begun := attemptFor(made, number, names, start)
	begun.Retry, begun.NodeClassName = acquire.Retry(s.ws), r.market.ClassOf(made.NodeClass).Name
	s.attempts.Begin(begun)
}

// attemptFor returns an attempt to get the machines of a plan.
func attemptFor(made *revision, number int32, names []string, start time.Time) v1beta1.Attempt {
	plan := &made.Plan
	return v1beta1.Attempt{
		Number: number, Revision: made.Name, NodeClaims: names, StartTime: metav1.NewTime(start),
		InstanceType: plan.InstanceType, Zone: acquire.Place(plan.Zones), CapacityType: plan.CapacityType,
	}
}

// end closes the open attempt, if there is one.
func (s *scope) end(verdict refusal.Verdict, now time.Time) {
	if open := s.openAttempt(); open != nil {
		acquire.Close(open, verdict, s.ws.Generation, now)
	}
}

// persist writes the attempts, if they changed. Nothing is bought and nothing let go before the
// status tells why. A pass that started from an old Workspace fails to write; one that has nothing to
// write is stopped by confirm.
func (r *Reconciler) persist(ctx context.Context, s *scope) error {
	if equality.Semantic.DeepEqual(s.ws.Status.Attempts, []v1beta1.Attempt(s.attempts)) {
		return nil
	}
	before := s.ws.DeepCopy()
	s.ws.Status.Attempts = s.attempts.Clone()
	if err := r.patchStatus(ctx, before, s.ws); err != nil {
		s.ws.Status.Attempts = before.Status.Attempts
		r.lessons.unanswered(err, asker(s.ws), before.Status.Attempts, s.attempts)
		return fmt.Errorf("writing the attempts down: %w", err)
	}
	s.persisted = true
	emit(r.Events, s.ws, status.Refusals(before.Status.Attempts, s.attempts))
	r.lessons.note(asker(s.ws), before.Status.Attempts, s.attempts)
	r.Metrics.waste(s)
	return nil
}

// confirm returns a conflict if this pass does not know the newest Workspace. One that has put the finalizer on, or
// written the attempts down, does.
func (r *Reconciler) confirm(ctx context.Context, s *scope) error {
	if s.persisted || s.isNew {
		return nil
	}
	return r.checkNewest(ctx, s)
}

// checkNewest returns a conflict if the Workspace has been written since this pass read it. A machine
// may vanish sooner than the cache shows that it was there, and would be asked for again; one of an
// attempt that the cache does not show yet would be let go.
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
