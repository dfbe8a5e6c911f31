// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import "slices"

// best returns the best option for a request, if any.
func (p *Planner) best(r Request) (*option, bool) {
	d, err := p.demand(r)
	if err != nil {
		return nil, false
	}
	return p.bestFor(d, r.Constraints)
}

// bestFor returns the best option for a demand, if any.
func (p *Planner) bestFor(d demand, c Constraints) (*option, bool) {
	found, err := p.search(d, c)
	if err != nil || len(found.options) == 0 {
		return nil, false
	}
	return found.options[0], true
}

// search places the demand on every allowed machine.
func (p *Planner) search(d demand, c Constraints) (outcome, error) {
	candidates, warnings, err := p.candidates(c)
	if err != nil {
		return outcome{}, err
	}
	found := outcome{warnings: warnings, zones: distinct(c.Zones)}
	for i := range candidates {
		p.consider(d, c, &candidates[i], &found)
	}
	found.rank(d)
	if m, ok := d.(*modelDemand); ok {
		found = p.shortened(m, c, candidates, found)
	}
	found.capLatency(d, c)
	return found, nil
}

// rank sorts options, best first.
func (found *outcome) rank(d demand) {
	level(found.options)
	level(found.tooDear)
	if m, ok := d.(*modelDemand); ok {
		weigh(found.options, m)
	}
	slices.SortFunc(found.options, ranking(d))
	slices.SortFunc(found.tooDear, byPrice)
}
