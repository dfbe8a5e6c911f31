// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
)

// briefSilence is how long a brief wait may last before the status shows it.
const briefSilence = 2 * time.Second

// report writes the results of the pass as one status patch, if anything changed, and publishes the events of that
// status.
func (r *Reconciler) report(ctx context.Context, s *scope.Scope, err error) error {
	before, now := s.Workspace.Status, r.Clock.Now()
	after, events := s.Status(err, metav1.NewTime(now))
	if !equality.Semantic.DeepEqual(before, after) {
		if r.postpones(s, err, &after, len(events)) {
			return nil
		}
		former := s.Workspace.DeepCopy()
		s.Workspace.Status = after
		if err := r.records.patchStatus(ctx, former, s.Workspace); err != nil {
			r.lessons.Unanswered(err, lessons.Asker(s.Workspace), before.Attempts, after.Attempts)
			return fmt.Errorf("patching status of workspace %s/%s: %w", s.Workspace.Namespace, s.Workspace.Name, err)
		}
	}
	r.awaitProbe(s)
	emit(r.Events, s.Workspace, events)
	r.lessons.Note(lessons.Asker(s.Workspace), before.Attempts, after.Attempts)
	r.Metrics.Started(before.Startup, s.Workspace.Status.Startup)
	r.Metrics.Waste(s.Wasted)
	s.Wasted = 0
	return nil
}

// postpones reports whether a later pass should write the status. A brief wait usually ends with the next pass,
// so its write would be useless; changed attempts are written anyway. Mere progress waits for its turn.
func (r *Reconciler) postpones(s *scope.Scope, err error, after *v1beta1.WorkspaceStatus, events int) bool {
	before := &s.Workspace.Status
	if isBrief(err) {
		lasted := r.backoff.Lasted(client.ObjectKeyFromObject(s.Workspace), r.Clock.Now())
		return lasted < briefSilence && equality.Semantic.DeepEqual(before.Attempts, after.Attempts)
	}
	if err != nil || s.CapacityErr != nil {
		return false
	}
	wait := r.records.coalescer.waitFor(s.Workspace.UID, before, after, events)
	if wait > 0 {
		s.LookAgain(wait)
	}
	return wait > 0
}

// emit publishes the events of a status after it is written.
func emit(to record.EventRecorder, ws *v1beta1.Workspace, events []status.Event) {
	for _, event := range events {
		kind := corev1.EventTypeNormal
		if event.IsWarning {
			kind = corev1.EventTypeWarning
		}
		to.Event(ws, kind, event.Reason, event.Message)
	}
}
