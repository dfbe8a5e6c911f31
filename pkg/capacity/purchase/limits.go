// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"fmt"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/usd"
)

// planLimits are the administrator's limits on a plan.
func (c *Choice) planLimits() (planning.Limits, error) {
	ceilings, err := c.ceilings()
	if err != nil {
		return planning.Limits{}, err
	}
	return planning.Limits{
		Ceiling: c.ceiling(ceilings, request.MaxHourlyPrice(c.Spec) > 0), OneMachine: c.OneMachine(c.Workspace.Namespace),
		InstanceTypes: c.Limits.InstanceTypes,
	}, nil
}

// ceiling returns the highest allowed price of any plan, without regard to held machines.
func (c *Choice) ceiling(ceilings ledger.Ceilings, hasOwn bool) planner.Ceiling {
	kind, limit := ceilings.Lowest()
	lowest := planner.Ceiling{
		HourlyPrice: limit, Name: fmt.Sprintf("the administrator's ceiling %s of", kind), Help: "have the administrator raise the ceiling",
	}
	usual := planner.Ceiling{
		HourlyPrice: c.Limits.MaxHourlyPrice, Name: "this installation's default limit of",
		Help: "set resource.placement.maxHourlyPrice",
	}
	if hasOwn || usual.HourlyPrice <= 0 || lowest.HourlyPrice > 0 && lowest.HourlyPrice <= usual.HourlyPrice {
		return lowest
	}
	return usual
}

// ceilings returns the ceilings of a Workspace. Its namespace may have its own ceiling. If that is invalid, the error
// is a *progress.StalledError, because an invalid ceiling must not count as no ceiling.
func (c *Choice) ceilings() (ledger.Ceilings, error) {
	out := c.Limits.Ceilings
	text, isSet := c.Namespace.Annotations[v1beta1.AnnotationSpendingCeiling]
	if !isSet {
		return out, nil
	}
	price, ok := usd.Parse(text)
	if !ok {
		const most = 64
		return out, &progress.StalledError{
			Reason: v1beta1.ReasonSpendingCeilingInvalid,
			Message: fmt.Sprintf("nothing is bought: namespace %s has the annotation %s with the value %q, which is not a price: "+
				"have the administrator set a number above 0 in USD per hour, such as 50, or remove the annotation",
				c.Workspace.Namespace, v1beta1.AnnotationSpendingCeiling, request.Shorten(text, most)),
		}
	}
	out.Namespace, out.IsNamespaceOwn = price, true
	return out, nil
}
