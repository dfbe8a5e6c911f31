// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/usd"
	"github.com/modelberth/modelberth/pkg/wording"
)

// advice lists other plans that only the user can choose. Some cost less: weights or a KV cache in fewer bits, a part of
// a GPU, a higher price per hour with a lower one per token, another region, or several deployments. One holds the
// whole target, if the chosen plan holds less.
func (p *Planner) advice(r Request, d demand, found outcome) []string {
	options, chosen := found.options, found.options[0]
	m, ok := d.(*modelDemand)
	if !ok {
		return nil
	}
	var out []string
	for _, text := range []string{
		p.fewerBits(r, m, chosen), p.smallerCache(r, m, chosen), m.slice(chosen), m.perToken(options),
		cmp.Or(found.longer(m), p.whole(r, m, chosen)), m.elsewhere(found), found.sideBySide(division{p, r}.forRate()),
	} {
		if text != "" {
			out = append(out, wording.Clip(text, longestWarning))
		}
	}
	return out
}

// fewerBits advises the cheapest machine for weights in a precision that the user has not allowed yet.
func (p *Planner) fewerBits(r Request, d *modelDemand, chosen *option) string {
	var consents []string
	if r.Model.Float16 == "" && p.isBFloat16(chosen.layout.form.artifact) {
		consents = append(consents, float16)
	}
	for _, a := range r.Model.Artifacts {
		if !p.allows(r.Constraints, a) && p.engines[strings.ToLower(a.Engine)] != nil && a.Engine == chosen.layout.form.artifact.Engine {
			consents = append(consents, a.Quantization)
		}
	}
	if len(consents) == 0 || chosen.price < 0 {
		return ""
	}
	o, ok := inFewerBits(p, r, d, chosen, consents)
	if !ok || !d.saves(o, chosen) || o.layout.form.isPublished() {
		return ""
	}
	if o.layout.form.insteadOf != "" {
		return fmt.Sprintf("in %s, %s would run on %s instead of %s: no published test covers the quality of its answers at that "+
			"precision; to try it, set inference.engine.allowedQuantizations: [%s]", float16, r.Model.Name, priced(o), usd.PerHour(chosen.price), float16)
	}
	return fmt.Sprintf("with %s weights (%s), the model would run on %s instead of %s: allow them with inference.engine.allowedQuantizations: [%s]",
		o.layout.form.artifact.Quantization, o.layout.form.artifact.Repo, priced(o), usd.PerHour(chosen.price),
		o.layout.form.artifact.Quantization)
}

// inFewerBits returns the best option for weights in one of the formats. Each turn drops a format that holds less than
// the chosen option. Otherwise it could hide another format that holds the target.
func inFewerBits(p *Planner, r Request, d *modelDemand, chosen *option, consents []string) (*option, bool) {
	for {
		relaxed := r
		relaxed.Constraints.AllowedQuantizations = append(slices.Clone(r.Constraints.AllowedQuantizations), consents...)
		o, ok := d.mostPrecise(p.consented(relaxed, d, chosen))
		if !ok || !o.layout.lowered || chosen.layout.lowered {
			return o, ok
		}
		left := slices.DeleteFunc(slices.Clone(consents), func(name string) bool { return name == o.layout.form.consent() })
		if len(left) == len(consents) || len(left) == 0 {
			return o, ok
		}
		consents = left
	}
}

// consent returns the format that a user must allow for a form.
func (f *form) consent() string {
	if f.insteadOf != "" {
		return float16
	}
	return f.artifact.Quantization
}

// mostPrecise returns the option with the most bits per weight among those that cost at most the objective's premium
// more than the best one. It skips options with the publisher's own weights: they need no consent.
func (g *goals) mostPrecise(options []*option) (*option, bool) {
	if len(options) == 0 {
		return nil, false
	}
	best := options[0]
	for _, o := range options {
		if o.price >= 0 && o.price <= options[0].price*(1+g.objective.Premium) && o.nodes <= options[0].nodes &&
			!o.layout.form.isPublished() && o.layout.form.bits() > best.layout.form.bits() {
			best = o
		}
	}
	return best, true
}

// consented returns the options for a request that allows more forms than d does, best first. All cost notably less
// than the chosen one. There are none if the objective would prefer an option that saves less. It does not try machine
// types whose price alone is too high for the objective.
func (p *Planner) consented(relaxed Request, d *modelDemand, chosen *option) []*option {
	more, err := p.modelDemand(relaxed)
	if err != nil {
		return nil
	}
	more.terse, more.placements = true, map[hardware]*placement{}
	for key, found := range d.placements {
		// The forms of d come first in the relaxed request too, so a layout on one machine stays the same.
		if found.why == nil && found.layout.spread.nodes == 1 && !found.layout.lowered {
			more.placements[key] = found
		}
	}
	c := relaxed.Constraints
	candidates, _, err := p.candidates(c)
	if err != nil {
		return nil
	}
	var found outcome
	most := chosen.price * (1 - notable)
	preferred := most * (1 + more.objective.Premium)
	for i := range candidates {
		m := &candidates[i]
		paid, reason := p.allowed(c, m)
		if price := m.priceAs(paid); reason == "" && price >= 0 && price <= preferred {
			p.consider(more, c, m, &found)
		}
	}
	found.options = slices.DeleteFunc(found.options, func(o *option) bool { return o.price > preferred })
	found.rank(more)
	found.capLatency(more, c)
	if len(found.options) > 0 && found.options[0].price > most {
		return nil
	}
	return slices.DeleteFunc(found.options, func(o *option) bool { return o.price > most })
}

// notable is the part of a price that advice must save. A smaller saving is within the error of an estimated speed. It
// justifies neither fewer bits nor a higher price per hour.
const notable = 0.2

// saves reports whether an option costs notably less than the chosen one, is no worse by the objective, and holds the
// target if the chosen one does.
func (g *goals) saves(o, chosen *option) bool {
	switch {
	case o.price < 0 || o.price > chosen.price*(1-notable) || o.layout.lowered && !chosen.layout.lowered:
		return false
	case g.optimizeFor == v1beta1.OptimizeForLatency:
		return o.layout.pace.TPOT > 0 && o.layout.pace.TPOT <= chosen.layout.pace.TPOT
	case g.optimizeFor == v1beta1.OptimizeForThroughput:
		return byToken(o, chosen) < 0
	case g.optimizeFor == v1beta1.OptimizeForBalanced && o.price*(1+g.objective.Premium) >= chosen.price:
		return byToken(o, chosen) <= 0
	default:
		return true
	}
}

// smallerCache advises the cheapest machine with an 8-bit KV cache.
func (p *Planner) smallerCache(r Request, d *modelDemand, chosen *option) string {
	const eightBits = "fp8"
	f := chosen.layout.form
	types, _ := kvTypes(r, f.engine)
	if f.kvName() != "" || chosen.price < 0 || len(types) != 1 || f.engine.KVType(eightBits) == nil {
		return ""
	}
	relaxed := r
	relaxed.Constraints.AllowedKVCacheTypes = []string{eightBits}
	options := p.consented(relaxed, d, chosen)
	if len(options) == 0 || !d.saves(options[0], chosen) || options[0].layout.form.kvType == "" {
		return ""
	}
	return fmt.Sprintf("with a KV cache in %s, the model would run on %s instead of %s: allow it with inference.engine.allowedKVCacheTypes: [%s]",
		eightBits, priced(options[0]), usd.PerHour(chosen.price), eightBits)
}

// perToken advises a machine that costs more per hour and notably less per token.
func (g *goals) perToken(found []*option) string {
	chosen, best := found[0], found[0]
	atAnyLoad := !g.target.concurrencySet && chosen.layout.load.Rate == 0
	for _, o := range found[1:] {
		if o.nodeNames == nil && o.perMillion() > 0 && o.perMillion() < best.perMillion() && (!atAnyLoad || !o.layout.lowered) {
			best = o
		}
	}
	was, is := significant(chosen.perMillion()), significant(best.perMillion())
	if !comparesHours(g.optimizeFor) || chosen.nodeNames != nil || best == chosen || is > was*(1-notable) {
		return ""
	}
	set := "inference.objectives.optimizeFor: Throughput"
	if atAnyLoad { // alone, Throughput would plan for as many requests as possible
		set += fmt.Sprintf(" and inference.objectives.concurrency: %d", best.layout.load.Concurrency)
	}
	return fmt.Sprintf("%s serves the same load for %s per million output tokens instead of %s, at %.3g ms per token instead of "+
		"%.3g: for a steady load, set %s",
		priced(best), usd.Significant(is), usd.Significant(was), best.layout.pace.TPOT, chosen.layout.pace.TPOT, set)
}

// whole advises the plan for the whole target, as if the user set it, if the chosen option holds less.
func (p *Planner) whole(r Request, d *modelDemand, chosen *option) string {
	if !chosen.layout.lowered {
		return ""
	}
	r.Objectives.MaxModelLen, r.Objectives.Concurrency = d.target.length, d.target.concurrency
	whole, err := p.modelDemand(r)
	if err != nil {
		return ""
	}
	whole.terse = true
	o, ok := p.bestFor(whole, r.Constraints)
	if !ok || o.nodeNames != nil || o.price < 0 {
		return ""
	}
	return fmt.Sprintf("%s holds %s: set inference.objectives.maxModelLen: %d and inference.objectives.concurrency: %d to get it",
		priced(o), d.target, d.target.length, d.target.concurrency)
}

// elsewhere advises a machine that has no price in this region and would beat the chosen one at its price in another
// region of its cloud.
func (g *goals) elsewhere(found outcome) string {
	chosen := found.options[0]
	if !comparesHours(g.optimizeFor) || chosen.nodeNames != nil || chosen.price < 0 {
		return ""
	}
	best := *chosen
	for _, o := range found.unpriced {
		there := *o
		if there.price = total(o.machine.Prices[o.machine.cheapestRegion()], o.nodes); there.price > 0 && g.improves(&there, &best) {
			best = there
		}
	}
	if best.machine == chosen.machine {
		return ""
	}
	text := fmt.Sprintf("%s has no price in %s; in %s, it costs %s instead of this plan's %s", named(&best), best.machine.regionName(),
		best.machine.cheapestRegion(), usd.PerHour(best.price), usd.PerHour(chosen.price))
	if was, is := chosen.perMillion(), best.perMillion(); was > 0 && is > 0 {
		text += fmt.Sprintf(", and %s per million output tokens instead of %s", usd.Significant(significant(is)), usd.Significant(significant(was)))
	}
	return text + ": consider that region"
}

// improves reports whether an option would rank before another one: it costs less per hour. For Balanced, if the prices
// are within the premium of each other, it costs less per token.
func (g *goals) improves(o, than *option) bool {
	switch {
	case o.layout.lowered && !than.layout.lowered, o.nodes > than.nodes && o.price > than.price*(1-g.saving(o)):
		return false
	case g.optimizeFor == v1beta1.OptimizeForBalanced && o.price*(1+g.objective.Premium) >= than.price:
		return o.price <= than.price*(1+g.objective.Premium) && byToken(o, than) < 0
	default:
		return o.price < than.price-cent
	}
}

// slice advises the smallest MIG slice of the chosen GPU that meets the objectives.
func (d *modelDemand) slice(chosen *option) string {
	l := &chosen.layout
	if l.spread.copyGPUs() != 1 || !comparesHours(d.optimizeFor) {
		return ""
	}
	used := l.fitted.memory.Weights + l.fitted.memory.Overhead + l.needed
	for _, profile := range chosen.machine.gpu.MIG {
		if profile.Count < 2 || used > profile.MemoryGiB {
			continue
		}
		slice, ok := chosen.machine.gpu.Slice(profile.Name)
		if !ok {
			continue
		}
		part := *chosen.machine
		part.gpu = slice
		try := *l
		try.spread.replicas = 1
		d.judge(&try, &part)
		if try.pace.TPOT == 0 || try.overrun() || d.isSlow(&try) {
			continue
		}
		return fmt.Sprintf("one %s slice of the GPU %s would meet the objectives (a GPU has %d): if the administrator offers "+
			"MIG slices, a part of the machine is enough", profile.Name, chosen.machine.gpu.Class, profile.Count)
	}
	return ""
}

// comparesHours reports whether an objective limits the choice by the price per hour.
func comparesHours(o v1beta1.OptimizeFor) bool {
	return o == v1beta1.OptimizeForCost || o == v1beta1.OptimizeForBalanced
}
