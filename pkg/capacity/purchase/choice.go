// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Affordable chooses a plan and reserves the money for it, unless nothing has to be bought. If the money suffices only
// for the offer that is about to be lost, that offer is chosen again.
func (c *Choice) Affordable(ctx context.Context, number int32) (*revision.Revision, error) {
	made, err := c.affordableBut(ctx, number, c.Deleting)
	if c.Deleting != nil && progress.LacksMoney(err) {
		made, err = c.affordableBut(ctx, number, nil)
	}
	if err != nil {
		c.Preflight.Settle(c.Workspace.UID)
	}
	return made, err
}

// affordableBut is Affordable without the offer that is about to be lost; nil excludes nothing. With an
// *acquire.RecreateError, it also returns the plan that replaces the serving machines.
func (c *Choice) affordableBut(ctx context.Context, number int32, deleting *cooldown.Exclusion) (*revision.Revision, error) {
	made, err := c.choose(ctx, deleting)
	if err != nil || made.IsOnNodes() || c.Suffices(made) {
		return made, err
	}
	if err := c.checkPurchase(ctx, made); err != nil {
		return nil, err
	}
	if _, err := planning.APIKey(ctx, c.Objects, c.Workspace); err != nil { // the key may be gone by now
		return nil, err
	}
	if err := c.CheckBeside(made); err != nil {
		return c.affordInstead(ctx, made, number, err)
	}
	granted, err := c.Afford(ctx, made, number)
	if _, isRecreate := errors.AsType[*acquire.RecreateError](err); isRecreate {
		return made, err
	}
	if err != nil || granted.IsOnNodes() {
		return granted, err
	}
	if granted != made {
		if err := c.checkPurchase(ctx, granted); err != nil {
			c.Ledger.Forget(c.Workspace.UID)
			return nil, err
		}
	}
	return granted, c.takeTurn(granted)
}

// affordInstead returns the plan whose machines replace the serving ones, because the back end cannot hold both.
func (c *Choice) affordInstead(ctx context.Context, made *revision.Revision, number int32, why error) (*revision.Revision, error) {
	if !c.IsAnswering { // machines are worth keeping only while their model answers
		return made, why
	}
	granted, err := c.instead(ctx, made, number, why)
	if err != nil || granted.IsOnNodes() || c.Suffices(granted) {
		return granted, err
	}
	return granted, c.takeTurn(granted)
}

// choose returns the plan to request: the accepted plan at the current price, or a new one. It makes a new plan after
// a refusal, if the accepted plan exceeds a current limit, or if offers were cooling down when the accepted plan was
// made. It avoids an offer that is about to be lost if any other is suitable.
func (c *Choice) choose(ctx context.Context, deleting *cooldown.Exclusion) (*revision.Revision, error) {
	excluded, err := c.excluded()
	if err != nil {
		return nil, err
	}
	if deleting != nil {
		made, err := c.makePlan(ctx, limits{excluded: append(slices.Clone(excluded), *deleting)})
		if _, isStalled := errors.AsType[*progress.StalledError](err); !isStalled {
			return provisional(made), err
		}
	}
	accepted, forbidden := c.Today(c.Accepted)
	if forbidden != "" {
		return c.replaceForbidden(ctx, excluded, forbidden)
	}
	isCooling := slices.ContainsFunc(excluded, func(e cooldown.Exclusion) bool { return isOffer(e, &c.Accepted.Plan) })
	last := c.Attempts.LatestBut(c.Surge.Serving)
	isFresh := last == nil || last.Reason == v1beta1.ReasonReleased
	if !isCooling && !c.Accepted.Provisional && isFresh {
		return accepted, nil
	}
	made, err := c.makePlan(ctx, limits{excluded: excluded})
	if _, isStalled := errors.AsType[*progress.StalledError](err); isStalled {
		if !isCooling {
			return accepted, nil // the accepted plan remains: it is not cooling down
		}
		return nil, c.exhausted(ctx, excluded)
	}
	if err != nil {
		return nil, err
	}
	if !isCooling && SameMachines(&made.Plan, &c.Accepted.Plan) {
		return accepted, nil
	}
	made.Provisional = len(excluded) > 0
	return made, nil
}

// replaceForbidden plans again because the current limits forbid the accepted plan. The new plan has a warning about
// that.
func (c *Choice) replaceForbidden(ctx context.Context, excluded []cooldown.Exclusion, forbidden string) (*revision.Revision, error) {
	made, err := c.makePlan(ctx, limits{excluded: excluded})
	if _, isStalled := errors.AsType[*progress.StalledError](err); isStalled && len(excluded) > 0 {
		if _, err = c.makePlan(ctx, limits{}); err == nil {
			err = c.exhausted(ctx, excluded) // only the cooldowns are in the way
		}
	}
	if err != nil {
		return nil, err
	}
	made.Plan.Warnings = append(made.Plan.Warnings,
		fmt.Sprintf("this plan replaces %s, which may no longer be bought: %s", c.Accepted.Plan.Summary(), forbidden))
	made.Provisional = len(excluded) > 0
	return made, nil
}

// provisional marks a plan that was made during cooldowns.
func provisional(made *revision.Revision) *revision.Revision {
	if made != nil {
		made.Provisional = true
	}
	return made
}

// takeTurn returns nil if the offer may be requested now, or a *progress.WaitingError if another Workspace tries it
// first.
func (c *Choice) takeTurn(made *revision.Revision) error {
	plan := &made.Plan
	offer := c.Offering(plan.InstanceType, acquire.Place(plan.Zones), plan.CapacityType, c.ClassOf(made.NodeClass).Name)
	if c.Attempts.IsRetry(c.Workspace) || c.Memory.Ask(c.Clock.Now(), c.asker(), offer) {
		return nil
	}
	c.Ledger.Forget(c.Workspace.UID)
	return &progress.WaitingError{Message: "another Workspace has just requested " + plan.InstanceType + ": waiting for the result of that request before requesting the same machine type", IsBrief: true}
}

// SameMachines reports whether two plans request the same machines.
func SameMachines(a, b *planner.Plan) bool {
	return a.InstanceType == b.InstanceType && a.CapacityType == b.CapacityType && a.Nodes == b.Nodes &&
		acquire.Place(a.Zones) == acquire.Place(b.Zones) && slices.Equal(a.NodeNames, b.NodeNames)
}

// First makes the first plan from some inputs. former is the previous plan, or nil. That plan stays if only the limit
// on the price was lowered and the held machines suffice. Cooldowns do not count for offers with held machines, because
// these need not be bought.
func (c *Choice) First(ctx context.Context, former *revision.Revision) (*revision.Revision, error) {
	if former != nil && revision.OnlyLowersPrice(c.Inputs, former.Inputs) && c.Attempts.Suffice(c.Machines, &former.Revision) {
		return &revision.Revision{Revision: former.Revision}, nil
	}
	excluded, err := c.excluded()
	if err != nil {
		return nil, err
	}
	if toBuy := c.withoutHeld(excluded); len(toBuy) < len(excluded) {
		made, err := c.makePlan(ctx, limits{excluded: toBuy})
		if err == nil && c.Attempts.Suffice(c.Machines, &made.Revision) {
			return made, nil
		}
	}
	made, err := c.makePlan(ctx, limits{excluded: excluded})
	if _, stalled := errors.AsType[*progress.StalledError](err); stalled && len(excluded) > 0 {
		return c.makePlan(ctx, limits{}) // the plan waits for the present cooldowns
	}
	if err != nil {
		return nil, err
	}
	made.Provisional = len(excluded) > 0
	return made, nil
}

// withoutHeld removes the offers of held machines from the exclusions.
func (c *Choice) withoutHeld(excluded []cooldown.Exclusion) []cooldown.Exclusion {
	var held []capacity.Machine
	for _, open := range c.Attempts.Open() {
		held = append(held, c.Machines.Of(open)...)
	}
	return slices.DeleteFunc(slices.Clone(excluded), func(e cooldown.Exclusion) bool {
		return slices.ContainsFunc(held, func(machine capacity.Machine) bool {
			return machine.InstanceType == e.Offering.InstanceType && machine.CapacityType == e.Offering.CapacityType
		})
	})
}

// Elsewhere makes a plan without the offers that are cooling down.
func (c *Choice) Elsewhere(ctx context.Context) (*revision.Revision, error) {
	excluded, err := c.excluded()
	if err != nil {
		return nil, err
	}
	return c.makePlan(ctx, limits{excluded: excluded})
}

// Anywhere makes a plan as if no offer were cooling down.
func (c *Choice) Anywhere(ctx context.Context) (*revision.Revision, error) {
	return c.makePlan(ctx, limits{})
}
