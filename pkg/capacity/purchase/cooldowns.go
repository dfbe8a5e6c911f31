// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
)

// excluded returns the offers that are cooling down in the Workspace's zones: a refusal is about one place. It is
// empty while the user requests a retry.
func (c *Choice) excluded() ([]cooldown.Exclusion, error) {
	if c.Attempts.IsRetry(c.Workspace) {
		return nil, nil
	}
	class, err := c.Planning.Resolver.NodeClass(c.Spec)
	if err != nil {
		return nil, err
	}
	zone, className := "", c.ClassOf(class).Name
	if c.Spec.Resource.Placement != nil {
		zone = acquire.Place(c.Spec.Resource.Placement.Zones)
	}
	out := c.Memory.Exclusions(c.Clock.Now(), c.asker(), c.offers(zone, className))
	c.LeftAlone = nil
	for i := range out {
		c.LeftAlone = append(c.LeftAlone, out[i].Offering)
	}
	return out, nil
}

// exclusions returns cooldowns in the planner's form.
func exclusions(excluded []cooldown.Exclusion) []planner.Exclusion {
	out := make([]planner.Exclusion, 0, len(excluded))
	for _, e := range excluded {
		out = append(out, planner.Exclusion{
			InstanceType: e.Offering.InstanceType, CapacityType: e.Offering.CapacityType,
			Reason: fmt.Sprintf("refused recently (%s): cooling down until %s", e.Cause, progress.Clock(e.Until)),
		})
	}
	return out
}

// exhausted returns the error that every suitable machine type is cooling down, with the end of the wait and the
// remedy.
func (c *Choice) exhausted(ctx context.Context, excluded []cooldown.Exclusion) error {
	asked, err := c.demand(ctx)
	if err != nil {
		return err
	}
	reopens := c.reopens(asked.Request, excluded)
	pinned := blocking(excluded, &c.Accepted.Plan)
	if reopens.IsZero() { // no new plan is possible, but the accepted one remains
		reopens = pinned.Until
	}
	return &progress.WaitingError{
		Reason: string(pinned.Cause),
		Message: fmt.Sprintf("every suitable machine type is cooling down until %s: %s%s",
			progress.Clock(reopens), c.help(asked.Request, excluded, pinned.Cause), c.wordsAbout(pinned)),
		After: max(reopens.Sub(c.Clock.Now()), time.Second),
	}
}

// blocking returns the exclusion that delays a plan, or else the exclusion that ends first.
func blocking(excluded []cooldown.Exclusion, plan *planner.Plan) cooldown.Exclusion {
	if i := slices.IndexFunc(excluded, func(e cooldown.Exclusion) bool { return isOffer(e, plan) }); i >= 0 {
		return excluded[i]
	}
	return slices.MinFunc(excluded, func(a, b cooldown.Exclusion) int { return a.Until.Compare(b.Until) })
}

func isOffer(e cooldown.Exclusion, plan *planner.Plan) bool {
	return e.Offering.InstanceType == plan.InstanceType && e.Offering.CapacityType == plan.CapacityType &&
		e.Offering.Zone == acquire.Place(plan.Zones)
}

// reopens returns the earliest time of another plan; zero if waiting alone does not help.
func (c *Choice) reopens(asked planner.Request, excluded []cooldown.Exclusion) time.Time {
	return cooldown.Reopens(excluded, func(left []cooldown.Exclusion) bool {
		_, err := c.planBut(asked, left)
		return err == nil
	})
}

// planBut returns the plan with only these exclusions.
func (c *Choice) planBut(asked planner.Request, excluded []cooldown.Exclusion) (planner.Plan, error) {
	asked.Constraints.Excluded = append(slices.Clone(asked.Constraints.Excluded), exclusions(excluded)...)
	return c.Planner.Plan(asked)
}

// help returns a remedy that is faster than waiting. If a quota excludes offers, it names the machines that a larger
// quota would allow, whatever the accepted plan waits for.
func (c *Choice) help(asked planner.Request, excluded []cooldown.Exclusion, cause refusal.Cause) string {
	isQuota := func(e cooldown.Exclusion) bool { return e.Cause == refusal.Quota }
	if !slices.ContainsFunc(excluded, isQuota) {
		return helpFor(cause)
	}
	opened, err := c.planBut(asked, slices.DeleteFunc(slices.Clone(excluded), isQuota))
	if err != nil {
		return helpFor(cause)
	}
	return fmt.Sprintf("to retry sooner, allow more machine types, or use a cluster in another region; "+
		"a larger quota would allow %s: once you have the quota, set the annotation %s to a new value", opened.Summary(), v1beta1.AnnotationRetryCapacity)
}

// wordsAbout quotes the latest attempt of this Workspace that caused an exclusion; empty if another Workspace caused
// it.
func (c *Choice) wordsAbout(excluded cooldown.Exclusion) string {
	for i := len(c.Attempts) - 1; i >= 0; i-- {
		a := &c.Attempts[i]
		scope, err := refusal.ParseScope(a.Scope)
		if err != nil || a.Reason != string(excluded.Cause) || !scope.Covers(excluded.Offering) {
			continue
		}
		words := fmt.Sprintf("; the last refusal was of %s: %s", a.InstanceType, a.Message)
		if a.Fix != "" {
			words += "; " + a.Fix
		}
		return words
	}
	return ""
}

// helpFor returns a remedy that is faster than waiting.
func helpFor(cause refusal.Cause) string {
	switch cause {
	case refusal.Quota:
		return "to retry sooner, allow more machine types, or use a cluster in another region; once you have a larger quota, set the annotation " +
			v1beta1.AnnotationRetryCapacity + " to a new value"
	case refusal.NoCapacity, refusal.NotOffered, refusal.TimedOut:
		return "to retry sooner, allow more machine types, capacity types or zones, or use a cluster in another region"
	default:
		return "to retry sooner, allow more machine types"
	}
}
