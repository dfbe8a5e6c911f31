// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
	revisions "github.com/modelberth/modelberth/pkg/revision"
)

// revision is an accepted plan with its pods.
type revision = revisions.Revision

// Kinds of revisions: the first one from some inputs, and those that replace it.
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

// revisionsInUse are the names of the revisions that the status, the attempts and the StatefulSets name.
func (s *scope) revisionsInUse() []string {
	names := s.namedRevisions()
	for _, set := range s.sets() {
		names = append(names, set.Annotations[v1beta1.AnnotationRevision])
	}
	return names
}

// namedRevisions are the names of the revisions that the status and the attempts name. Of failed attempts, only the last
// one counts.
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
