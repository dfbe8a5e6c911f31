// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// mostSteps bounds the steps of one pass: at most adopt, end, record, next, record and ask follow each other.
const mostSteps = 8

// mostAttempts bounds the search for the attempt of a machine's name.
const mostAttempts = 4096

// ensureCapacity gets the machines of the accepted plan, or those of the next best.
func (r *Reconciler) ensureCapacity(ctx context.Context, s *scope) error {
	s.capacityErr = classify(r.orOnNodes(ctx, s, r.acquire(ctx, s)))
	s.move()
	if s.heldAttempt() != nil {
		return s.serveOn(s.capacityErr)
	}
	return s.capacityErr
}

// acquire takes steps until there is nothing to do but to wait.
func (r *Reconciler) acquire(ctx context.Context, s *scope) error {
	for range mostSteps {
		if s.isOnNodes() {
			if err := r.ensureNodes(ctx, s); err != nil || s.isOnNodes() {
				return err
			}
		}
		state, err := r.state(ctx, s)
		if err != nil {
			return err
		}
		step := acquire.Decide(state)
		isOver, err := r.take(ctx, s, step)
		if err != nil || isOver {
			return err
		}
	}
	return &progress.WaitingError{Message: "deciding about machines", IsBrief: true}
}

// take takes one step, and says whether it was the last one of this pass.
func (r *Reconciler) take(ctx context.Context, s *scope, step acquire.Step) (isOver bool, err error) {
	now := r.Clock.Now()
	switch step.Do {
	case acquire.AdoptServing:
		return false, r.adoptServing(ctx, s)
	case acquire.Cancel:
		s.end(step.Verdict, now)
		return false, nil
	case acquire.Adopt:
		return false, r.adopt(ctx, s)
	case acquire.Replace:
		return r.replaceLost(ctx, s, step.Lost)
	case acquire.End:
		return false, r.end(ctx, s, step)
	case acquire.LetGo:
		r.endHeld(ctx, s, step.Verdict)
		return false, nil
	case acquire.Record:
		return false, r.persist(ctx, s)
	case acquire.Release:
		return true, r.release(ctx, s)
	case acquire.Await:
		return true, s.await(now)
	case acquire.Stop:
		return r.stop(ctx, s)
	case acquire.Next:
		return false, r.next(ctx, s)
	case acquire.Ask:
		return r.ask(ctx, s)
	default:
		s.keep(step.Verdict, now)
		return true, nil
	}
}

// keep waits for the world to move, and notes when the machines of the open attempt are usable.
func (s *scope) keep(verdict refusal.Verdict, now time.Time) {
	s.verdict = verdict
	if at := verdict.LookAgain; !at.IsZero() {
		s.lookAgain(at.Sub(now))
	}
	if open := s.openAttempt(); open.ReadyTime == nil && s.areMachinesUsable() {
		open.ReadyTime = new(seconds(s.readySince(open, now)))
	}
}
