// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// attemptLimit is how many attempts a status has room for.
const attemptLimit = 20

// begin opens an attempt for a plan.
func (s *scope) begin(made *revision, number int32, names []string, start time.Time) {
	plan := &made.Plan
	s.attempts.Begin(v1beta1.Attempt{
		Number: number, Revision: made.Name, NodeClaims: names, StartTime: metav1.NewTime(start), Retry: acquire.Retry(s.ws),
		InstanceType: plan.InstanceType, Zone: acquire.Place(plan.Zones), CapacityType: plan.CapacityType,
	})
}

// failed returns the verdict on an attempt whose pods fail.
func (r *Reconciler) failed(s *scope, open *v1beta1.Attempt) refusal.Verdict {
	known := acquire.Snapshot{
		Judge: acquire.Judge{Now: r.Clock.Now(), FailureDeadline: r.Answers.FailureDeadline}, Surge: s.surge, Lookup: lookups{r, s},
	}
	return known.Failed(open)
}

// letGo ends the open attempt because its machines are no longer wanted.
func (s *scope) letGo(why string, now time.Time) { s.end(acquire.Released(why), now) }

// letAllGo ends all open attempts because their machines are no longer wanted.
func (s *scope) letAllGo(why string, now time.Time) { s.attempts.Release(why, s.ws.Generation, now) }

// noteCreated records in the open attempt which machines were created.
func (s *scope) noteCreated(created []capacity.Created, now time.Time) {
	acquire.NoteCreated(s.openAttempt(), created, now)
}

// noteMachines records in the open attempt what is observed of its machines.
func (s *scope) noteMachines(names []string, now time.Time) {
	s.attempts.Note(s.openAttempt(), s.machines, names, now)
}
