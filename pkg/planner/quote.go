// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Quote returns an accepted plan at the price of the day, in USD per hour, or the reason why its machines may not
// be bought under the constraints of the day. The layout stays as it was accepted. A plan at another price keeps only the
// number of its Alternatives: they were compared at the former one.
func (p *Planner) Quote(plan Plan, c Constraints) (Plan, string) {
	if len(plan.NodeNames) > 0 {
		return plan, "" // existing nodes are not bought
	}
	if c.OneMachine != "" && plan.Nodes > 1 && plan.Engine != "" { // machines of a template work each by themselves
		return plan, c.OneMachine
	}
	i := slices.IndexFunc(p.machines, func(m machine) bool { return m.Name == plan.InstanceType })
	if i < 0 {
		return plan, "not a machine type of this installation's catalogue"
	}
	m := &p.machines[i]
	types, reason := p.payable(c, m)
	if reason == "" {
		reason = notPayable(types, m, plan.CapacityType)
	}
	if reason != "" {
		return plan, reason
	}
	price := total(m.priceAs(plan.CapacityType), plan.Nodes)
	if reason := notBudgeted(c, m, price); reason != "" {
		return plan, reason
	}
	return plan.at(price), ""
}

// notPayable explains why a machine cannot be paid for in the plan's accepted way.
func notPayable(types []v1beta1.CapacityType, m *machine, accepted v1beta1.CapacityType) string {
	if _, unsold := capacityType([]v1beta1.CapacityType{accepted}, m); unsold != "" {
		return unsold
	}
	if !slices.Contains(types, accepted) {
		return fmt.Sprintf("no longer offered as %s", accepted)
	}
	return ""
}

// notBudgeted explains why a price is too high or, if negative, unknown.
func notBudgeted(c Constraints, m *machine, price float64) string {
	if price < 0 && c.MaxHourlyPrice <= 0 && !isNamed(c, m) {
		return unknownPrice(m)
	}
	return tooDear(c, m, price)
}

// unknownPrice describes a machine without a known price.
func unknownPrice(m *machine) string {
	return fmt.Sprintf("no price known in %s%s, so it is chosen only by name", m.regionName(), m.soldElsewhere())
}

// at is the plan at another price per hour.
func (p *Plan) at(price float64) Plan {
	out := *p
	if price == p.HourlyPrice {
		return out
	}
	out.HourlyPrice, out.Premium = price, ""
	out.Alternatives, out.TurnedDown = nil, p.TurnedDown+len(p.Alternatives)
	if p.Performance != nil {
		performance := *p.Performance
		performance.PricePerMillion = significant(perMillion(price, performance.OutputTokensPerSecond))
		out.Performance = &performance
	}
	return out
}
