// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Quote returns an accepted plan with today's price in USD per hour, or the reason why today's constraints do not allow
// buying its machines. The layout stays as accepted. If the price changed, the plan keeps only the number of its
// Alternatives, because they were compared with the old price.
func (p *Planner) Quote(plan Plan, c Constraints) (Plan, string) {
	if len(plan.NodeNames) > 0 {
		return plan, "" // existing nodes are not bought
	}
	if c.OneMachine != "" && plan.Nodes > 1 && plan.Engine != "" { // the pods of a template work independently of each other
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

// notPayable explains why the accepted capacity type cannot be bought any more; "" if it can.
func notPayable(types []v1beta1.CapacityType, m *machine, accepted v1beta1.CapacityType) string {
	if _, unsold := capacityType([]v1beta1.CapacityType{accepted}, m); unsold != "" {
		return unsold
	}
	if !slices.Contains(types, accepted) {
		return fmt.Sprintf("no longer offered as %s", accepted)
	}
	return ""
}

// notBudgeted explains why a price is too high, or, if negative, why an unknown price is not accepted; "" if it is.
func notBudgeted(c Constraints, m *machine, price float64) string {
	if price < 0 && c.MaxHourlyPrice <= 0 && !isNamed(c, m) {
		return unknownPrice(m)
	}
	return tooDear(c, m, price)
}

// unknownPrice explains why a machine without a known price is not chosen.
func unknownPrice(m *machine) string {
	return fmt.Sprintf("no price known in %s%s, so a plan uses it only if you name it", m.regionName(), m.soldElsewhere())
}

// at returns the plan with another price per hour.
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
