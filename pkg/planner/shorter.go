// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
)

// shortened searches again with shorter sequences if the user left their length open. Nobody asked for a second machine
// or a dearer class of GPU, so a cheaper single machine comes first. Choices within one machine stay as they are. The
// result is found itself unless a plan with shorter sequences comes first.
func (p *Planner) shortened(d *modelDemand, c Constraints, candidates []machine, found outcome) outcome {
	least := leastModelLen // if nothing holds the usual ones
	var best *option
	if len(found.options) > 0 {
		best, least = found.options[0], d.objective.LeastModelLen
	}
	if d.terse || d.target.lengthSet || d.target.shortest > 0 || least == 0 {
		return found
	}
	short := d.shorter(least)
	if best != nil {
		short.limit = 1
	}
	var less []*option
	for i := range candidates {
		if m := &candidates[i]; best == nil || p.mayReplace(m, c, best) && !found.holdsOnOne(m) {
			less = append(less, p.considerLess(short, c, m)...)
		}
	}
	if len(less) == 0 {
		return found
	}
	out := found.clone()
	for _, o := range less {
		out.replace(o)
	}
	out.rank(d)
	if len(out.options) == 0 || !out.options[0].layout.short {
		return found
	}
	out.usual, out.short = best, short
	return out
}

// shorter is the demand with shorter sequences for existing nodes. It is the demand of the machines to buy, or the least
// one if nothing can be bought. It is nil if the usual length is to be kept.
func (found *outcome) shorter(d demand) *modelDemand {
	m, ok := d.(*modelDemand)
	if found.short != nil || !ok || len(found.options) > 0 || m.target.lengthSet || m.target.shortest > 0 {
		return found.short
	}
	return m.shorter(leastModelLen)
}

// shorter is the demand with sequences down to a number of tokens, but not below the typical request.
func (d *modelDemand) shorter(least int) *modelDemand {
	out := *d
	out.placements = nil
	out.target.shortest = max(least, d.typical.Input+d.typical.Output)
	return &out
}

// mayReplace reports whether one machine of a type may replace the best option: it must cost less, and save a second
// machine or a class of GPU.
func (p *Planner) mayReplace(m *machine, c Constraints, best *option) bool {
	paid, reason := p.allowed(c, m)
	price := m.priceAs(paid)
	return reason == "" && price >= 0 && price < best.level-cent && (best.nodes > 1 || m.gpu.Class != best.machine.gpu.Class)
}

// holdsOnOne reports whether one machine of a type is an option already.
func (found *outcome) holdsOnOne(m *machine) bool {
	return slices.ContainsFunc(found.options, func(o *option) bool { return o.machine == m && o.nodes == 1 })
}

// considerLess tries one machine type with a smaller demand, and returns the options.
func (p *Planner) considerLess(short *modelDemand, c Constraints, m *machine) []*option {
	var less outcome
	p.consider(short, c, m, &less)
	return slices.DeleteFunc(less.options, func(o *option) bool { return !o.layout.short })
}

// replace replaces the results for a machine type by an option.
func (found *outcome) replace(with *option) {
	same := func(o *option) bool { return o.machine == with.machine }
	named := func(v Verdict) bool { return v.InstanceType == with.machine.Name }
	found.options = append(slices.DeleteFunc(found.options, same), with)
	found.tooDear = slices.DeleteFunc(found.tooDear, same)
	found.unpriced = slices.DeleteFunc(found.unpriced, same)
	found.misfits = slices.DeleteFunc(found.misfits, named)
	found.rejected = slices.DeleteFunc(found.rejected, named)
}

// clone returns a copy for another ranking. A ranking writes into options.
func (found outcome) clone() outcome {
	out := found
	out.options, out.tooDear, out.unpriced = slices.Clone(found.options), slices.Clone(found.tooDear), slices.Clone(found.unpriced)
	out.misfits, out.rejected = slices.Clone(found.misfits), slices.Clone(found.rejected)
	for i, o := range out.options {
		again := *o
		out.options[i] = &again
	}
	return out
}

// longer names the plan with sequences of the usual length if this one has shorter ones.
func (found outcome) longer(d *modelDemand) string {
	if found.usual == nil || found.options[0].nodeNames != nil {
		return ""
	}
	return fmt.Sprintf("%s holds sequences of %d tokens: set inference.objectives.maxModelLen: %d to get it", priced(found.usual),
		d.target.length, d.target.length)
}
