// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"

	revisions "github.com/modelberth/modelberth/pkg/revision"
)

// wayBack explains how to undo an edit after which the model fails; empty if no other inputs have answered.
func (s *scope) wayBack() string {
	served, current := s.revisions.Object(s.ws.Status.LatestReadyRevision), s.revisions.Object(s.running().Name)
	if served == nil || current == nil || revisions.HasSameInputs(served, current) {
		return ""
	}
	return fmt.Sprintf("; revision %d answered before the edit: to go back, run kubectl berth rollback %s --to-revision %d",
		served.Revision, s.ws.Name, served.Revision)
}
