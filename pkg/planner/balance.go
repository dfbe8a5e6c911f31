// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/usd"
	"github.com/modelberth/modelberth/pkg/wording"
)

// standing compares an option's price with the cheapest per hour; lower is better. Only Balanced sets it.
type standing int

const (
	// worthwhile is the affordable option that repays its surcharge best.
	worthwhile standing = iota
	// affordable options cost at most the objective's premium more than the cheapest hour.
	affordable
	// dear options cost more, or their price is unknown.
	dear
	// scattered options take more machines than necessary and save too little for it.
	scattered
)

// cent is the smallest difference in USD per hour between prices that count as different.
const cent = 0.01

// rounding exceeds the floating-point error of a difference of two prices: 2.01 - 2 is slightly less than a cent.
const rounding = 1e-9

// ranking orders options by the objective, and then by byPrice.
func ranking(d demand) func(a, b *option) int {
	return func(a, b *option) int {
		return cmp.Or(d.compare(a, b), byPrice(a, b))
	}
}

// byPrice is the default order: options with a price first, then the cheapest, then without InfiniBand, then fewer
// machines, then fewer GPUs, then by name.
func byPrice(a, b *option) int {
	return cmp.Or(
		boolOrder(a.price >= 0, b.price >= 0),
		cmp.Compare(a.level, b.level),
		boolOrder(a.machine.NetworkGBs == 0, b.machine.NetworkGBs == 0),
		cmp.Compare(a.nodes, b.nodes),
		cmp.Compare(a.gpus, b.gpus),
		cmp.Compare(a.machine.GPUs, b.machine.GPUs),
		cmp.Compare(a.machine.Name, b.machine.Name),
	)
}

// level sets the price level of each option. Options less than a cent above the cheapest of a level belong to it.
func level(options []*option) {
	slices.SortFunc(options, func(a, b *option) int { return cmp.Compare(a.price, b.price) })
	for i, o := range options {
		o.level = o.price
		if i > 0 && o.price >= 0 && o.price-options[i-1].level < cent-rounding && options[i-1].level >= 0 {
			o.level = options[i-1].level
		}
	}
}

// weigh sets the standing of options for Balanced.
func weigh(options []*option, d *modelDemand) {
	if d.optimizeFor != v1beta1.OptimizeForBalanced {
		return
	}
	// Options on fewer machines come first, because an option on more machines must save against them.
	byNodes := slices.Clone(options)
	slices.SortStableFunc(byNodes, func(a, b *option) int { return cmp.Compare(a.nodes, b.nodes) })
	cheapest, nodes, fewer := math.Inf(1), 0, math.Inf(1)
	for _, o := range byNodes {
		if o.nodes > nodes {
			nodes, fewer = o.nodes, cheapest
		}
		switch {
		case o.price < 0:
			o.standing = dear
		case o.price > fewer*(1-d.saving(o)):
			o.standing = scattered
		default:
			o.standing = affordable
			cheapest = min(cheapest, o.price)
		}
	}
	for _, o := range options {
		if o.standing == affordable && o.price > cheapest*(1+d.objective.Premium)+cent/2 {
			o.standing = dear
		}
	}
	markWorthwhile(options, d.objective.Gain)
}

// markWorthwhile marks the affordable option that repays its surcharge best. It starts with the cheapest hour. Each
// dearer option must beat the best one so far by a gain, because speeds are estimates: a smaller difference may be an
// error.
func markWorthwhile(options []*option, gain float64) {
	var best *option
	for _, o := range options { // cheapest first
		if o.standing == affordable && (best == nil || cmp.Or(byBalance(o, best), byPrice(o, best)) < 0 && o.repays(best, gain)) {
			best = o
		}
	}
	if best != nil {
		best.standing = worthwhile
	}
}

// repays reports whether an option is worth its surcharge over a cheaper one: both have the same price level, only one
// of them holds the whole target, or tokens get cheaper by the gain.
func (o *option) repays(cheaper *option, gain float64) bool {
	return o.level == cheaper.level || o.layout.lowered != cheaper.layout.lowered || o.layout.short != cheaper.layout.short ||
		cheaper.perMillion() < 0 || o.perMillion() <= cheaper.perMillion()*(1-gain)
}

// saving returns the part of the hourly price that an option must save if it takes more machines.
func (g *goals) saving(o *option) float64 {
	if o.layout.rdma {
		return g.objective.Saving.RDMA
	}
	return g.objective.Saving.Network
}

// byBalance orders options by standing. It puts affordable ones first if they hold the target, and then by the price of
// a token.
func byBalance(a, b *option) int {
	if order := cmp.Compare(a.standing, b.standing); order != 0 || a.standing > affordable {
		return order
	}
	return cmp.Or(boolOrder(!a.layout.lowered, !b.layout.lowered), boolOrder(!a.layout.short, !b.layout.short), byToken(a, b))
}

// byToken orders options by the price of a token, unknown prices last.
func byToken(a, b *option) int {
	return cmp.Or(boolOrder(a.perMillion() >= 0, b.perMillion() >= 0), cmp.Compare(a.perMillion(), b.perMillion()))
}

// outbalanced returns why an option is not affordable, or costs more per token.
func (g *goals) outbalanced(best, other *option) string {
	switch {
	case other.price < 0 || best.price < 0:
		return ""
	case other.standing == scattered && other.level <= best.level:
		return fmt.Sprintf("takes %s for %s: a plan with more machines must cost at least %.0f %% less", count(other.nodes, "machine"),
			usd.PerHour(other.price), 100*g.saving(other))
	case other.standing == affordable && byToken(best, other) != 0 && other.perMillion() < 0:
		return "its speed is not known"
	case other.standing == affordable && byToken(best, other) > 0:
		return fmt.Sprintf("costs %s more and produces only %.2f × the tokens per dollar", usd.PerHour(other.price-best.price), best.perMillion()/other.perMillion())
	case other.standing == affordable && byToken(best, other) != 0:
		return dearerToken(best, other)
	default:
		return ""
	}
}

// premium describes the surcharge of the best option over the cheapest one, and its benefit.
func (found outcome) premium(best *option) string {
	cheapest := best
	for _, o := range found.options {
		if o.standing <= affordable && o.nodeNames == nil && o.price >= 0 && o.price < cheapest.price {
			cheapest = o
		}
	}
	if best.nodeNames != nil || cheapest.level == best.level {
		return ""
	}
	more := fmt.Sprintf("%s more than %s", usd.PerHour(best.price-cheapest.price), priced(cheapest))
	if best.perMillion() > 0 && cheapest.perMillion() > 0 {
		return fmt.Sprintf("%s for %.2g × the tokens per dollar", more, cheapest.perMillion()/best.perMillion())
	}
	return more
}

// capLatency limits the price under the objective Latency if the user set no limit. A plan may then exceed the cheapest
// option by the objective's premium.
func (found *outcome) capLatency(d demand, c Constraints) {
	m, ok := d.(*modelDemand)
	if !ok || m.optimizeFor != v1beta1.OptimizeForLatency || c.MaxHourlyPrice > 0 || len(found.options) == 0 {
		return
	}
	cheapest := slices.MinFunc(found.options, func(a, b *option) int {
		return cmp.Or(boolOrder(!a.layout.lowered, !b.layout.lowered), byPrice(a, b))
	}).price
	if cheapest < 0 {
		return
	}
	times := 1 + m.objective.Premium
	limit := math.Round(cheapest*times*1e6) / 1e6
	found.options = slices.DeleteFunc(found.options, func(o *option) bool {
		if o.price >= 0 && o.price <= limit {
			return false
		}
		reason := fmt.Sprintf("costs %s, above %s (%g × the cheapest plan); to allow it, set resource.placement.maxHourlyPrice",
			usd.PerHour(o.price), usd.PerHour(limit), times)
		if o.price < 0 {
			reason = "no price known in " + o.machine.regionName() + o.machine.soldElsewhere()
		}
		found.rejected = append(found.rejected, Verdict{
			InstanceType: o.machine.Name, Nodes: o.nodes, HourlyPrice: o.price, Reason: wording.Clip(reason, longestVerdict),
		})
		return true
	})
}

// dearerToken says how much more an option costs per token.
func dearerToken(best, other *option) string {
	return fmt.Sprintf("costs more per token: %s per million instead of %s", usd.Significant(other.perMillion()), usd.Significant(best.perMillion()))
}

// outranked explains why the objective prefers the best option to another one; it returns "" if the price explains
// that.
func (g *goals) outranked(best, other *option) string {
	if other.layout.lowered && !best.layout.lowered && other.standing == affordable {
		return other.layout.holdsLess(best)
	}
	switch g.optimizeFor {
	case v1beta1.OptimizeForBalanced:
		return g.outbalanced(best, other)
	case v1beta1.OptimizeForLatency:
		return fmt.Sprintf("slower: %.3g ms per token instead of %.3g", other.layout.pace.TPOT, best.layout.pace.TPOT)
	case v1beta1.OptimizeForThroughput:
		if other.price >= 0 {
			return dearerToken(best, other)
		}
	}
	return ""
}
