// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/commits"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	revisions "github.com/modelberth/modelberth/pkg/revision"
)

// revision is an accepted plan with its pods.
type revision = revisions.Revision

// Kinds of revisions: the first one of some inputs, and its successors.
const (
	firstRevision    = false
	fallbackRevision = true
)

// createRevision pins a revision.
func (r *Reconciler) createRevision(
	ctx context.Context, s *scope, in render.Inputs, made *revision, isFallback bool,
) (*revision, error) {
	return r.revisions.Pin(ctx, revisions.Pin{
		Workspace: s.ws, Inputs: in, Revision: made, IsFallback: isFallback, Known: s.revisions, InUse: s.revisionsInUse(),
	})
}

// revisionsInUse returns the revisions in the status, the attempts and the StatefulSets, by name.
func (s *scope) revisionsInUse() []string {
	names := s.namedRevisions()
	for _, set := range s.sets() {
		names = append(names, set.Annotations[v1beta1.AnnotationRevision])
	}
	return names
}

// namedRevisions returns the revisions in the status and the attempts, by name. Of failed attempts, only the last one
// counts.
func (s *scope) namedRevisions() []string {
	names := []string{s.ws.Status.LatestReadyRevision}
	if s.ws.Status.Plan != nil {
		names = append(names, s.ws.Status.Plan.Revision)
	}
	for i := range s.attempts {
		if s.attempts[i].Reason == "" || i == len(s.attempts)-1 {
			names = append(names, s.attempts[i].Revision)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// A plan names its verified weights and the demands of its day. After a change of the demands, a serving model goes on; no
// machine is bought and no pod begins before the weights are verified again (docs/adr/0014-verified-weights.md).

// ensureVerified verifies the weights of a stored revision again before something begins with it under other demands. The
// error is a *progress.StalledError if they cannot be verified, and the revision is not the accepted one.
func (r *Reconciler) ensureVerified(ctx context.Context, s *scope, in render.Inputs) error {
	err := s.noteUnverified(ctx, r.planning.Weights)
	if err != nil || s.revision.Unverified == "" {
		return err
	}
	ask, err := r.choice(s).Ask()
	if err != nil {
		return err
	}
	made, err := r.planning.Verify(ctx, ask, s.revision)
	if stalled, ok := errors.AsType[*progress.StalledError](err); ok && s.isAccepted(s.revision) {
		s.revision.Unverified = stalled.Message
		return nil
	}
	if err == nil {
		err = r.confirm(ctx, s)
	}
	if err != nil {
		return err
	}
	if s.revision, err = r.createRevision(ctx, s, in, made, fallbackRevision); err != nil {
		return err
	}
	log.FromContext(ctx).Info("the weights of a stored plan were verified again", "plan", s.revision.Plan.Summary())
	if err := s.noteUnverified(ctx, r.planning.Weights); err != nil || s.revision.Unverified == "" {
		return err
	}
	return progress.Behind("revision") // another pass has pinned its own under that name
}

// noteUnverified notes why nothing may begin with the revision. A revision serving from held machines begins nothing.
func (s *scope) noteUnverified(ctx context.Context, weights *planning.Weights) error {
	if s.isRunning(s.revision) && (s.isOnNodes() || s.attempts.Suffice(s.machines, &s.revision.Revision)) {
		return nil
	}
	var err error
	s.revision.Unverified, err = weights.Unverified(ctx, s.spec, &s.revision.Plan)
	return err
}

// checkVerified returns a *progress.StalledError if pods of the revision would begin with weights not verified under the
// demands of today.
func (s *scope) checkVerified() error {
	runs := s.running()
	if runs.Unverified == "" || s.isRunning(runs) {
		return nil
	}
	return &progress.StalledError{Reason: v1beta1.ReasonWeightsNotVerified, Message: runs.Unverified}
}

// isRunning says whether the pods are told to run a revision.
func (s *scope) isRunning(made *revision) bool {
	return s.statefulSet != nil && s.statefulSet.Annotations[v1beta1.AnnotationRevision] == made.Name
}

// isAccepted says whether the status names a revision, or the pods are told to run it.
func (s *scope) isAccepted(made *revision) bool {
	return s.isRunning(made) || s.ws.Status.Plan != nil && s.ws.Status.Plan.Revision == made.Name
}

// hasServed reports whether a model has answered with the inputs of the accepted revision.
func (s *scope) hasServed() bool {
	ready := s.revisions.Object(s.ws.Status.LatestReadyRevision)
	current := s.revisions.Object(s.revision.Name)
	return ready != nil && current != nil && revisions.HasSameInputs(ready, current)
}

// acceptedLast returns the newest revision with the inputs of the accepted one. The last one may be in the attempts
// only: an attempt is written before the status of its plan.
func (s *scope) acceptedLast() *revision {
	accepted := s.accepted()
	if accepted == nil {
		return nil
	}
	object := s.revisions.Object(accepted.Name)
	if open := s.openAttempt(); open != nil && object != nil {
		if other := s.revisions.Object(open.Revision); other != nil && other.Revision > object.Revision {
			object = other
		}
	}
	if object != nil {
		if newest := s.revisions.NewestLike(object); newest != nil {
			return newest
		}
	}
	return accepted
}

// ensureCommit keeps the commit of the weights.
func (r *Reconciler) ensureCommit(ctx context.Context, s *scope) error {
	return commits.Ensure(ctx, r.Client, s.ws, s.pods, s.revisions)
}
