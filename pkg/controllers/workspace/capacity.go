// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"

	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/progress"
)

// mostSteps bounds the steps of one pass: at most record, next, record and ask follow each other.
const mostSteps = 8

// ensureCapacity gets the machines of the accepted plan, or those of the next best.
func (r *Reconciler) ensureCapacity(ctx context.Context, s *scope) error {
	s.capacityErr = classify(r.orOnNodes(ctx, s, r.acquire(ctx, s)))
	r.decidePods(s)
	if s.heldAttempt() != nil {
		return s.serveOn(s.capacityErr)
	}
	return s.capacityErr
}

// decidePods decides which revision the pods run, and on which machines.
func (r *Reconciler) decidePods(s *scope) {
	s.former, s.runsOn = nil, 0
	if s.isOnNodes() {
		return
	}
	pods := r.snapshot(s).Switchover(s.planErr == nil)
	if s.runsOn = pods.RunsOn; pods.Stays {
		s.former = s.revisionOf(s.statefulSet)
	}
}

// acquire takes steps until there is nothing to do but to wait.
func (r *Reconciler) acquire(ctx context.Context, s *scope) error {
	for range mostSteps {
		if s.isOnNodes() {
			if err := r.ensureNodes(ctx, s); err != nil || s.isOnNodes() {
				return err
			}
		}
		decision, err := r.decide(ctx, s)
		if err != nil {
			return err
		}
		isOver, err := r.take(ctx, s, decision.Step)
		if err != nil || isOver {
			return err
		}
	}
	return &progress.WaitingError{Message: "deciding about machines", IsBrief: true}
}

// take takes one step, and says whether it was the last one of this pass.
func (r *Reconciler) take(ctx context.Context, s *scope, step acquire.Step) (isOver bool, err error) {
	switch step.Do {
	case acquire.Record:
		return false, r.persist(ctx, s)
	case acquire.Replace:
		return r.replaceLost(ctx, s, step.Lost)
	case acquire.Release:
		return true, r.release(ctx, s)
	case acquire.Await:
		return true, r.await(s)
	case acquire.Stop:
		return r.stop(ctx, s)
	case acquire.Next:
		return false, r.next(ctx, s)
	case acquire.Ask:
		return r.ask(ctx, s)
	default:
		return true, nil
	}
}
