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

// RevisionsInUse returns the revisions in the status, the attempts and the StatefulSets, by name.
func (s *Scope) RevisionsInUse() []string {
	names := s.NamedRevisions()
	for _, set := range s.Sets() {
		names = append(names, set.Annotations[v1beta1.AnnotationRevision])
	}
	return names
}

// NamedRevisions returns the revisions in the status and the attempts, by name. Of failed attempts, only the last one
// counts.
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

// CheckVerified returns a *progress.StalledError if pods of the revision would begin with weights not verified under the
// demands of today.
func (s *Scope) CheckVerified() error {
	runs := s.Running()
	if runs.Unverified == "" || s.IsRunning(runs) {
		return nil
	}
	return &progress.StalledError{Reason: v1beta1.ReasonWeightsNotVerified, Message: runs.Unverified}
}

// IsRunning reports whether the StatefulSet has a revision.
func (s *Scope) IsRunning(made *revision.Revision) bool {
	return s.StatefulSet != nil && s.StatefulSet.Annotations[v1beta1.AnnotationRevision] == made.Name
}

// IsAccepted reports whether the status names a revision, or the StatefulSet has it.
func (s *Scope) IsAccepted(made *revision.Revision) bool {
	return s.IsRunning(made) || s.Workspace.Status.Plan != nil && s.Workspace.Status.Plan.Revision == made.Name
}

// HasServed reports whether a model has answered with the inputs of the accepted revision.
func (s *Scope) HasServed() bool {
	ready := s.Revisions.Object(s.Workspace.Status.LatestReadyRevision)
	current := s.Revisions.Object(s.Revision.Name)
	return ready != nil && current != nil && revision.HasSameInputs(ready, current)
}

// IsRepair reports whether the open attempt has machines whose pods answered with the accepted plan, so that the missing
// ones are replacements.
func (s *Scope) IsRepair() bool {
	open := s.OpenAttempt()
	return open != nil && open.ReadyTime != nil && s.Revision != nil && open.Revision == s.Revision.Name &&
		s.Workspace.Status.LatestReadyRevision == s.Revision.Name
}

// LastAccepted returns the newest revision with the inputs of the accepted one. The last one may be in the attempts
// only: an attempt is written before the status of its plan.
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

// UseAccepted plans from the inputs of the accepted revision.
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
	if limit := request.MaxHourlyPrice(s.Workspace); limit > 0 { // the last word about money counts
		placement := s.Spec.Resource.Placement.DeepCopy()
		if placement == nil {
			placement = &v1beta1.PlacementSpec{}
		}
		placement.MaxHourlyPrice = s.Workspace.Resource.Placement.MaxHourlyPrice
		s.Spec.Resource.Placement = placement
	}
}
