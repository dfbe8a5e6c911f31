// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// wayBack says how to have the model answer as it did, where an edit since made it fail; empty where nothing
// that was made from something else has answered.
func (s *scope) wayBack() string {
	served, current := s.revisionObject(s.ws.Status.LatestReadyRevision), s.revisionObject(s.running().Name)
	if served == nil || current == nil || served.Annotations[v1beta1.AnnotationHash] == current.Annotations[v1beta1.AnnotationHash] {
		return ""
	}
	return fmt.Sprintf("; revision %d answered before the edit: to go back, run kubectl berth rollback %s --to-revision %d",
		served.Revision, s.ws.Name, served.Revision)
}

// revisionObject returns the revision of that name as it is stored, or nil.
func (s *scope) revisionObject(name string) *appsv1.ControllerRevision {
	i := slices.IndexFunc(s.revisions, func(known appsv1.ControllerRevision) bool { return known.Name == name })
	if i < 0 {
		return nil
	}
	return &s.revisions[i]
}
