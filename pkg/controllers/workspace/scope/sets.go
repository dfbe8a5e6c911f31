// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// DesiredSets returns the StatefulSets in their desired state.
func (s *Scope) DesiredSets() []render.Object {
	runs := s.Running()
	desired := runs.Pods(s.Workspace, runs.Name, s.RevisionGroup())
	for _, object := range desired {
		if set, ok := object.(*appsv1.StatefulSet); ok && s.PinnedTo > 0 {
			workload.PinToAttempt(set, s.PinnedTo)
		}
	}
	if !s.IsGroup() {
		return desired
	}
	// The number of the group comes from the observed version. Over another version, the write could decrease the
	// number.
	for _, set := range s.Sets() {
		for _, object := range desired {
			if object.GetName() == set.Name {
				object.SetResourceVersion(set.ResourceVersion)
			}
		}
	}
	return desired
}

// RevisionGroup returns the stored group, without the failures of other revisions.
func (s *Scope) RevisionGroup() workload.Group {
	if s.StatefulSet != nil && s.StatefulSet.Annotations[v1beta1.AnnotationRevision] != s.Running().Name {
		return workload.Group{Number: s.Group.Number}
	}
	return s.Group
}
