// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"context"
	"errors"
	"slices"

	"github.com/samber/lo"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Afford reserves the money for a plan's machines. If the money is short, the best plan for the remaining money takes
// the place of this plan. If there is none, the Workspace waits until machines of others are gone.
func (c *Choice) Afford(ctx context.Context, made *revision.Revision, number int32) (*revision.Revision, error) {
	over, err := c.Reserve(ctx, made, number)
	if over == nil {
		return made, err
	}
	budget := c.Budget()
	if err := budget.InsteadOf(over); err != nil {
		return nil, err
	}
	cheaper, err := c.cheaper(ctx, over)
	if err != nil || cheaper.IsOnNodes() || c.Suffices(cheaper) {
		return cheaper, err
	}
	return c.reserved(ctx, cheaper, number)
}

// reserved returns a plan with the money for its machines, or an error that says how long the Workspace waits for it.
func (c *Choice) reserved(ctx context.Context, made *revision.Revision, number int32) (*revision.Revision, error) {
	over, err := c.Reserve(ctx, made, number)
	if over != nil {
		return nil, c.Short(over)
	}
	return made, err
}

// cheaper returns the best plan for the remaining money. If there is none, the error says how long the Workspace waits.
func (c *Choice) cheaper(ctx context.Context, over *ledger.OverError) (*revision.Revision, error) {
	excluded, err := c.excluded()
	if err != nil {
		return nil, err
	}
	if over.Room <= 0 {
		return nil, c.ShortUntil(ctx, over, excluded)
	}
	now := limits{
		excluded: excluded,
		room:     planner.Ceiling{HourlyPrice: over.Room, Name: "the remainder of a spending ceiling,", Help: "wait"},
	}
	out, err := c.makePlan(ctx, now)
	if _, isStalled := errors.AsType[*progress.StalledError](err); isStalled {
		return nil, c.ShortUntil(ctx, over, excluded)
	}
	if err != nil {
		return nil, err
	}
	out.Provisional = true
	return out, nil
}

// Reserve reserves the money for the missing machines of an attempt. The first result describes a lack of money; nil
// if it is granted.
func (c *Choice) Reserve(ctx context.Context, made *revision.Revision, number int32) (*ledger.OverError, error) {
	costs, err := c.costs(made, number)
	if err != nil {
		return nil, err
	}
	bought := c.Attempts.Known()
	costs = slices.DeleteFunc(costs, func(cost capacity.MachineCost) bool { // its cache may lag: it is not requested again
		return slices.ContainsFunc(bought, func(known capacity.Created) bool { return known.Name == cost.Machine })
	})
	ceilings, err := c.ceilings()
	if err != nil {
		return nil, err
	}
	ceilings.Month = c.month()
	err = c.Ledger.Reserve(ctx, c.Clock.Now(), costs, ceilings)
	if over, isOver := errors.AsType[*ledger.OverError](err); isOver {
		return over, nil
	}
	return nil, err
}

// costs returns the cost of each machine of an attempt for a plan.
func (c *Choice) costs(made *revision.Revision, number int32) ([]capacity.MachineCost, error) {
	names, err := c.Names(c.Owner, number, made.Plan.Nodes)
	return lo.Map(names, func(name string, _ int) capacity.MachineCost {
		return capacity.MachineCost{
			Owner: c.Owner, Machine: name, InstanceType: made.Plan.InstanceType, HourlyPrice: MachinePrice(&made.Plan),
		}
	}), err
}

// MachinePrice returns the price of one machine of a plan in USD per hour; negative if it is unknown.
func MachinePrice(plan *planner.Plan) float64 {
	if plan.HourlyPrice < 0 || plan.Nodes == 0 {
		return -1
	}
	return plan.HourlyPrice / float64(plan.Nodes)
}

// Short returns the error for a lack of money. The release of another Workspace's machines wakes this one.
func (c *Choice) Short(over *ledger.OverError) *progress.WaitingError {
	wait, now := &progress.WaitingError{Reason: v1beta1.ReasonSpendingCeiling, Message: over.Error()}, c.Clock.Now()
	if !over.LookAgain.IsZero() {
		wait.After = max(over.LookAgain.Sub(now), acquire.ShortestLook)
	}
	if over.Kind == ledger.NamespaceMonth {
		next := acquire.Earliest(over.LookAgain, acquire.Earliest(over.Ends, now.Add(longestMonth)))
		wait.Reason, wait.After = v1beta1.ReasonMonthlyBudget, max(next.Sub(now), acquire.ShortestLook)
	}
	return wait
}

// ShortUntil returns the error for a lack of money until the cooldown of a cheaper machine ends. The remaining money
// must pay for that machine, at least if it replaces the serving machines.
func (c *Choice) ShortUntil(ctx context.Context, over *ledger.OverError, excluded []cooldown.Exclusion) error {
	budget := c.Budget()
	room := budget.Room(over)
	if room <= 0 {
		return c.Short(over)
	}
	asked, err := c.demand(ctx)
	if err != nil {
		return err
	}
	asked.Request.Constraints.Ceiling = planner.Ceiling{HourlyPrice: room + acquire.PriceTolerance}
	over.LookAgain = acquire.Earliest(over.LookAgain, c.reopens(asked.Request, excluded))
	return c.Short(over)
}
