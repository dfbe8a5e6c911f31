// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/revision"
)

// RevisionsInUse returns the names of the revisions in the status, the attempts and the StatefulSets.
func (s *Scope) RevisionsInUse() []string {
	names := s.NamedRevisions()
	for _, set := range s.Sets() {
		names = append(names, set.Annotations[v1beta1.AnnotationRevision])
	}
	return names
}

// NamedRevisions returns the names of the revisions in the status and the attempts. Of the attempts that have ended,
// only the last attempt counts.
func (s *Scope) NamedRevisions() []string {
	names := []string{s.Workspace.Status.LatestReadyRevision}
	if s.Workspace.Status.Plan != nil {
		names = append(names, s.Workspace.Status.Plan.Revision)
	}
	for i := range s.Attempts {
		if s.Attempts[i].Reason == "" || i == len(s.Attempts)-1 {
			names = append(names, s.Attempts[i].Revision)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// CheckVerified returns a *progress.StalledError if new pods would start with weights that are not verified under the
// current requirements.
func (s *Scope) CheckVerified() error {
	runs := s.Running()
	if runs.Unverified == "" || s.IsRunning(runs) {
		return nil
	}
	return &progress.StalledError{Reason: v1beta1.ReasonWeightsNotVerified, Message: runs.Unverified}
}

// IsRunning reports whether the StatefulSet has this revision.
func (s *Scope) IsRunning(made *revision.Revision) bool {
	return s.StatefulSet != nil && s.StatefulSet.Annotations[v1beta1.AnnotationRevision] == made.Name
}

// IsAccepted reports whether the status names this revision, or the StatefulSet has it.
func (s *Scope) IsAccepted(made *revision.Revision) bool {
	return s.IsRunning(made) || s.Workspace.Status.Plan != nil && s.Workspace.Status.Plan.Revision == made.Name
}

// HasServed reports whether the model has answered with the inputs of the accepted revision.
func (s *Scope) HasServed() bool {
	ready := s.Revisions.Object(s.Workspace.Status.LatestReadyRevision)
	current := s.Revisions.Object(s.Revision.Name)
	return ready != nil && current != nil && revision.HasSameInputs(ready, current)
}

// IsRepair reports whether the open attempt already had all its machines, and its pods answered with the accepted plan.
// Then missing machines are replacements.
func (s *Scope) IsRepair() bool {
	open := s.OpenAttempt()
	return open != nil && open.ReadyTime != nil && s.Revision != nil && open.Revision == s.Revision.Name &&
		s.Workspace.Status.LatestReadyRevision == s.Revision.Name
}

// LastAccepted returns the newest revision with the inputs of the accepted one. Perhaps only the open attempt names the
// accepted revision yet, because the attempt is written before the plan's status.
func (s *Scope) LastAccepted() *revision.Revision {
	accepted := s.Accepted()
	if accepted == nil {
		return nil
	}
	object := s.Revisions.Object(accepted.Name)
	if open := s.OpenAttempt(); open != nil && object != nil {
		if other := s.Revisions.Object(open.Revision); other != nil && other.Revision > object.Revision {
			object = other
		}
	}
	if object != nil {
		if newest := s.Revisions.NewestLike(object); newest != nil {
			return newest
		}
	}
	return accepted
}

// UseAccepted makes later steps plan from the inputs of the accepted revision.
func (s *Scope) UseAccepted() {
	from := s.Revision.Inputs
	if from == nil {
		return
	}
	s.Inputs, s.Spec = *from, s.Workspace.DeepCopy()
	s.Spec.Resource, s.Spec.Inference = *from.Resource.DeepCopy(), from.Inference.DeepCopy()
	for _, key := range render.ShapingAnnotations() {
		delete(s.Spec.Annotations, key)
	}
	for key, value := range from.Annotations {
		metav1.SetMetaDataAnnotation(&s.Spec.ObjectMeta, key, value)
	}
	if limit := request.MaxHourlyPrice(s.Workspace); limit > 0 { // the newest limit on cost counts
		placement := s.Spec.Resource.Placement.DeepCopy()
		if placement == nil {
			placement = &v1beta1.PlacementSpec{}
		}
		placement.MaxHourlyPrice = s.Workspace.Resource.Placement.MaxHourlyPrice
		s.Spec.Resource.Placement = placement
	}
}
