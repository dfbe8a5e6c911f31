// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"context"

	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/revision"
)

// limits are the present limits of a plan.
type limits struct {
	// excluded are the cooldowns.
	excluded []cooldown.Exclusion
	// room is the remaining money; zero if money is not short.
	room planner.Ceiling
}

// makePlan makes a plan within limits, with its pods.
func (c *Choice) makePlan(ctx context.Context, now limits) (*revision.Revision, error) {
	ask, err := c.Ask()
	if err != nil {
		return nil, err
	}
	ask.Limits.Excluded = exclusions(now.excluded)
	if now.room.HourlyPrice > 0 {
		ask.Limits.Ceiling = now.room // below the permanent ceiling
	}
	return c.Planning.Make(ctx, ask)
}

// demand returns the Workspace's demand within the administrator's limits.
func (c *Choice) demand(ctx context.Context) (*planning.Demand, error) {
	ask, err := c.Ask()
	if err != nil {
		return nil, err
	}
	return c.Planning.Demand(ctx, ask)
}

// Ask returns the input of a plan for the Workspace.
func (c *Choice) Ask() (planning.Ask, error) {
	out := planning.Ask{Workspace: c.Spec, Inputs: c.Inputs, LeftNodes: c.LeftNodes, CannotBuy: c.CannotBuy}
	if c.Accepted != nil {
		out.Replaces = &c.Accepted.Plan
	}
	var err error
	out.Limits, err = c.planLimits()
	return out, err
}

// Today returns an accepted plan at today's price, or why its machines may not be bought today.
func (c *Choice) Today(accepted *revision.Revision) (*revision.Revision, string) {
	if accepted.Unverified != "" || accepted.IsOnNodes() {
		return accepted, accepted.Unverified
	}
	limits, err := c.planLimits()
	if err != nil {
		return accepted, progress.Message(err)
	}
	if c.IsRepair { // a serving group continues, even if new groups are forbidden
		limits.OneMachine = ""
	}
	return c.Planning.Builder.Quote(accepted, c.Spec, limits)
}
