// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Next chooses an affordable plan outside the cooldowns and begins an attempt for it. The end of the last attempt is
// already written, so the plan pinned here may replace that attempt's plan. While the current spec has no plan, Next
// begins another attempt only if the spec allows purchases and the model has answered with the accepted plan: otherwise
// nobody depends on the model.
func (e *Executor) Next(ctx context.Context, s *scope.Scope) error {
	if s.PlanErr != nil && (buysNothing(s.Workspace) || !s.HasServed()) {
		return s.PlanErr
	}
	number := s.Attempts.NextNumber()
	if _, err := e.Provisioner.Names(s.Owner, number, s.Revision.Plan.Nodes); err != nil {
		return err // there is nothing to buy with
	}
	made, err := e.choose(ctx, s, number)
	if err != nil || made == nil || s.IsOnNodes() || e.Choice(s).Suffices(made) {
		return err
	}
	names, err := e.Provisioner.Names(s.Owner, number, s.Revision.Plan.Nodes)
	if err != nil {
		return err
	}
	e.begin(s, s.Revision, number, names, e.Clock.Now())
	return nil
}

// choose chooses an affordable plan outside the cooldowns, and pins it. It returns nil if the serving machines must be
// released first.
func (e *Executor) choose(ctx context.Context, s *scope.Scope, number int32) (*revision.Revision, error) {
	// An earlier leader may have written the end of its attempt after this one had read all Workspaces.
	now := e.Clock.Now()
	own := e.Market.Remember(lessons.Asker(s.Workspace), s.Workspace.Status.Attempts)
	e.Lessons.Wake(e.Memory.Learn(now, refusal.Credible(own, now)...))
	key := client.ObjectKeyFromObject(s.Workspace)
	e.Waiting.Add(key) // before the choice, so that later changes wake the Workspace
	choice := e.Choice(s)
	made, err := choice.Affordable(ctx, number)
	if alone, ok := errors.AsType[*acquire.RecreateError](err); ok {
		s.Recreates, s.AsksAgain = alone.Error(), made != nil && choice.IsLikeServing(made) && choice.IsAnswering
		e.Waiting.Remove(key)
		return nil, nil
	}
	if err == nil && len(s.Attempts) == 0 && !s.IsNew && !made.IsOnNodes() { // a lost status has no attempts, either
		err = e.confirmMachines(ctx, s)
	}
	if err == nil {
		err = e.Effects.Pin(ctx, s, made)
	}
	if err != nil {
		e.Waiting.Narrow(key, watch.InterestOf(lessons.Asker(s.Workspace), s.Workspace, choice.LeftAlone, err))
		return nil, err
	}
	e.Waiting.Remove(key)
	return made, nil
}

// begin opens an attempt for a plan, with the node class of its machines.
func (e *Executor) begin(s *scope.Scope, made *revision.Revision, number int32, names []string, start time.Time) {
	s.Attempts.Begin(e.Snapshot(s).NewAttempt(scope.PlanOf(made), number, names, start))
}
