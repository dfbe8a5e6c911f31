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

// Affordable chooses a plan and reserves its money, unless the plan costs nothing more. The money may suffice only for the
// offer that is about to be lost: it is then requested in its own place.
func (c *Choice) Affordable(ctx context.Context, number int32) (*revision.Revision, error) {
	made, err := c.affordableBut(ctx, number, c.Deleting)
	wait, isShort := errors.AsType[*progress.WaitingError](err)
	if c.Deleting != nil && isShort && wait.Reason == v1beta1.ReasonSpendingCeiling {
		made, err = c.affordableBut(ctx, number, nil)
	}
	if err != nil {
		c.Preflight.Settle(c.Workspace.UID)
	}
	return made, err
}

// affordableBut chooses without an offer that is about to be lost; nil excludes nothing. With a
// *acquire.RecreateError comes the plan to replace the serving machines.
func (c *Choice) affordableBut(ctx context.Context, number int32, deleting *cooldown.Exclusion) (*revision.Revision, error) {
	made, err := c.choose(ctx, deleting)
	if err != nil || made.IsOnNodes() || c.Suffices(made) {
		return made, err
	}
	if err := c.checkPurchase(ctx, made); err != nil {
		return nil, err
	}
	if _, err := planning.APIKey(ctx, c.Objects, c.Workspace); err != nil { // it may have gone since the plan was pinned
		return nil, err
	}
	if err := c.CheckBeside(made); err != nil {
		return made, err
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

// choose returns the plan to request: the accepted one at the price of the day, or a new one. A plan is made anew after a
// refusal, over a limit of the day, or if offers were cooling down when it was made. What is about to be lost is left
// alone if anything else is suitable.
func (c *Choice) choose(ctx context.Context, deleting *cooldown.Exclusion) (*revision.Revision, error) {
	excluded, err := c.excluded()
	if err != nil {
		return nil, err
	}
	if deleting != nil {
		made, err := c.makePlan(ctx, limits{excluded: append(slices.Clone(excluded), *deleting)})
		if _, isStalled := errors.AsType[*progress.StalledError](err); !isStalled {
			return whilePassing(made), err
		}
	}
	accepted, forbidden := c.Today(c.Accepted)
	if forbidden != "" {
		return c.replaceForbidden(ctx, excluded, forbidden)
	}
	isCooling := slices.ContainsFunc(excluded, func(e cooldown.Exclusion) bool { return isOffer(e, &c.Accepted.Plan) })
	last := c.Attempts.LatestBut(c.Surge.Serving)
	isFresh := last == nil || last.Reason == v1beta1.ReasonReleased
	if !isCooling && !c.Accepted.Passing && isFresh {
		return accepted, nil
	}
	made, err := c.makePlan(ctx, limits{excluded: excluded})
	if _, isStalled := errors.AsType[*progress.StalledError](err); isStalled {
		if !isCooling {
			return accepted, nil // the plan stands: only its refusal is new, and that is over
		}
		return nil, c.exhausted(ctx, excluded)
	}
	if err != nil {
		return nil, err
	}
	if !isCooling && SameMachines(&made.Plan, &c.Accepted.Plan) {
		return accepted, nil
	}
	made.Passing = len(excluded) > 0
	return made, nil
}

// replaceForbidden plans anew because the limits of the day forbid the accepted plan. A warning of the new plan says so.
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
		fmt.Sprintf("replaces %s, which may not be bought today: %s", c.Accepted.Plan.Summary(), forbidden))
	made.Passing = len(excluded) > 0
	return made, nil
}

// whilePassing marks a plan made during cooldowns.
func whilePassing(made *revision.Revision) *revision.Revision {
	if made != nil {
		made.Passing = true
	}
	return made
}

// takeTurn says whether the offer may be asked for now, or is another Workspace's to ask for first.
func (c *Choice) takeTurn(made *revision.Revision) error {
	plan := &made.Plan
	offer := c.Offering(plan.InstanceType, acquire.Place(plan.Zones), plan.CapacityType, c.ClassOf(made.NodeClass).Name)
	if c.Attempts.IsRetry(c.Workspace) || c.Memory.Ask(c.Clock.Now(), c.asker(), offer) {
		return nil
	}
	c.Ledger.Forget(c.Workspace.UID)
	return &progress.WaitingError{Message: "another Workspace tries " + plan.InstanceType + " first", IsBrief: true}
}

// SameMachines reports whether two plans ask for the same.
func SameMachines(a, b *planner.Plan) bool {
	return a.InstanceType == b.InstanceType && a.CapacityType == b.CapacityType && a.Nodes == b.Nodes &&
		acquire.Place(a.Zones) == acquire.Place(b.Zones) && slices.Equal(a.NodeNames, b.NodeNames)
}

// First makes the first plan from some inputs. The former plan, which may be nil, stays if only the limit on the price was
// lowered. What is left alone after refusals does not count for machines that are held already: they need not be bought.
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
	made.Passing = len(excluded) > 0
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

// Elsewhere makes a plan outside the cooldowns.
func (c *Choice) Elsewhere(ctx context.Context) (*revision.Revision, error) {
	excluded, err := c.excluded()
	if err != nil {
		return nil, err
	}
	return c.makePlan(ctx, limits{excluded: excluded})
}

// Anywhere makes a plan without regard to refusals.
func (c *Choice) Anywhere(ctx context.Context) (*revision.Revision, error) {
	return c.makePlan(ctx, limits{})
}
