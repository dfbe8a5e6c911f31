// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
)

// shortened searches again with shorter sequences if the user set no length: a user who asked for neither a second
// machine nor a dearer class of GPU gets a cheaper single machine first. The choice within one machine type stays. It
// returns found itself unless an option with shorter sequences ranks first.
func (p *Planner) shortened(d *modelDemand, c Constraints, candidates []machine, found outcome) outcome {
	least := leastModelLen // for a search that found nothing
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

// shorter returns the demand with shorter sequences for existing nodes: the demand of the machines to buy, or the least
// demand if nothing can be bought. It returns nil if sequences must keep the usual length.
func (found *outcome) shorter(d demand) *modelDemand {
	m, ok := d.(*modelDemand)
	if found.short != nil || !ok || len(found.options) > 0 || m.target.lengthSet || m.target.shortest > 0 {
		return found.short
	}
	return m.shorter(leastModelLen)
}

// shorter returns the demand with sequences of at least that many tokens, and of no fewer than the typical request.
func (d *modelDemand) shorter(least int) *modelDemand {
	out := *d
	out.placements, out.holding = nil, holding{}
	out.target.shortest = max(least, d.typical.Input+d.typical.Output)
	return &out
}

// mayReplace reports whether one machine of a type may replace the best option. It must cost less, and save a second
// machine or have another class of GPU.
func (p *Planner) mayReplace(m *machine, c Constraints, best *option) bool {
	paid, reason := p.allowed(c, m)
	price := m.priceAs(paid)
	return reason == "" && price >= 0 && price < best.level-cent && (best.nodes > 1 || m.gpu.Class != best.machine.gpu.Class)
}

// holdsOnOne reports whether one machine of a type already is an option.
func (found *outcome) holdsOnOne(m *machine) bool {
	return slices.ContainsFunc(found.options, func(o *option) bool { return o.machine == m && o.nodes == 1 })
}

// considerLess tries one machine type with the smaller demand, and returns the options with shorter sequences.
func (p *Planner) considerLess(short *modelDemand, c Constraints, m *machine) []*option {
	var less outcome
	p.consider(short, c, m, &less)
	return slices.DeleteFunc(less.options, func(o *option) bool { return !o.layout.short })
}

// replace puts an option in place of all results for its machine type.
func (found *outcome) replace(with *option) {
	same := func(o *option) bool { return o.machine == with.machine }
	named := func(v Verdict) bool { return v.InstanceType == with.machine.Name }
	found.options = append(slices.DeleteFunc(found.options, same), with)
	found.tooDear = slices.DeleteFunc(found.tooDear, same)
	found.unpriced = slices.DeleteFunc(found.unpriced, same)
	found.misfits = slices.DeleteFunc(found.misfits, named)
	found.rejected = slices.DeleteFunc(found.rejected, named)
}

// clone returns a copy for another ranking, because ranking writes into options.
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

// longer advises the plan with sequences of the usual length, if the chosen one has shorter ones.
func (found outcome) longer(d *modelDemand) string {
	if found.usual == nil || found.options[0].nodeNames != nil {
		return ""
	}
	return fmt.Sprintf("%s holds sequences of %d tokens: set inference.objectives.maxModelLen: %d to get it", priced(found.usual),
		d.target.length, d.target.length)
}
