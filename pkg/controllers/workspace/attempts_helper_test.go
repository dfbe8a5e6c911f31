// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/acquisition"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/revision"
)

// attemptLimit is the number of attempts that fit into a status.
const attemptLimit = 20

// begin opens an attempt for a plan.
func begin(s *scope.Scope, made *revision.Revision, number int32, names []string, start time.Time) {
	plan := &made.Plan
	s.Attempts.Begin(v1beta1.Attempt{
		Number: number, Revision: made.Name, NodeClaims: names, StartTime: metav1.NewTime(start), Retry: acquire.Retry(s.Workspace),
		InstanceType: plan.InstanceType, Zone: acquire.Place(plan.Zones), CapacityType: plan.CapacityType,
	})
}

// failed returns the verdict on an attempt whose pods fail.
func (r *Reconciler) failed(s *scope.Scope, open *v1beta1.Attempt) refusal.Verdict {
	executor := acquisition.Executor{
		Clock: r.Clock, Settings: r.Acquisition, Exposure: r.Isolation.Exposure, Market: &purchase.Market{},
	}
	return executor.Snapshot(s).Failed(open)
}

// letGo ends the open attempt, whose machines are no longer wanted.
func letGo(s *scope.Scope, why string, now time.Time) { s.EndAttempt(acquire.Released(why), now) }

// letAllGo ends all open attempts, whose machines are no longer wanted.
func letAllGo(s *scope.Scope, why string, now time.Time) {
	s.Attempts.Release(why, s.Workspace.Generation, now)
}

// noteCreated records the created machines in the open attempt.
func noteCreated(s *scope.Scope, created []capacity.Created, now time.Time) {
	acquire.NoteCreated(s.OpenAttempt(), created, now)
}

// noteMachines records the observed machines in the open attempt.
func noteMachines(s *scope.Scope, names []string, now time.Time) {
	s.Attempts.Note(s.OpenAttempt(), s.Machines, names, 1, now)
}
