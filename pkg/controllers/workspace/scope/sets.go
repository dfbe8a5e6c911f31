// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// DesiredSets are the StatefulSets as they are to be.
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
	// The number of the group is that of the read version: from any other it would go back.
	for _, set := range s.Sets() {
		for _, object := range desired {
			if object.GetName() == set.Name {
				object.SetResourceVersion(set.ResourceVersion)
			}
		}
	}
	return desired
}

// RevisionGroup returns the stored group without failures of other revisions.
func (s *Scope) RevisionGroup() workload.Group {
	if s.StatefulSet != nil && s.StatefulSet.Annotations[v1beta1.AnnotationRevision] != s.Running().Name {
		return workload.Group{Number: s.Group.Number}
	}
	return s.Group
}
