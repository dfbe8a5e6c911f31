// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
)

// attemptLimit is how many attempts a status has room for.
const attemptLimit = 20

// begin opens an attempt for a plan.
func (s *scope) begin(made *revision, number int32, names []string, start time.Time) {
	begun := attemptFor(made, number, names, start)
	begun.Retry = acquire.Retry(s.ws)
	s.attempts.Begin(begun)
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
