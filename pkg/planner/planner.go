// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Settings of the installation.
type Settings struct {
	// Clouds that machines may be bought from; empty means every cloud of the catalogue.
	Clouds []string
	// Region whose prices count; empty means each cloud's reference region.
	Region string
}

// Planner plans from one catalogue. It keeps no state between plans, so it may be shared.
type Planner struct {
	catalog  *catalog.Catalog
	settings Settings
	// machines of the allowed clouds, by cloud and name.
	machines []machine
	// engines by lower-case name; copies, because a copy of an engine is large.
	engines map[string]catalog.Engine
}

// machine is a machine type with its GPU and what it costs here.
type machine struct {
	sku.SKU
	gpu sku.GPU
	// price per hour on demand, negative where the catalogue has none for the region.
	price  float64
	region string
}

// unpriced is the price of what the catalogue has no price for.
const unpriced = -1

// New returns a planner.
func New(c *catalog.Catalog, settings Settings) *Planner {
	p := &Planner{catalog: c, settings: settings, engines: map[string]catalog.Engine{}}
	for _, e := range c.Engines() {
		p.engines[strings.ToLower(e.Name)] = e
	}
	for _, s := range c.SKUs() {
		if len(settings.Clouds) == 0 || slices.Contains(settings.Clouds, s.Cloud) {
			p.machines = append(p.machines, p.machine(s))
		}
	}
	return p
}

// machine joins the facts about one machine type.
func (p *Planner) machine(s sku.SKU) machine {
	m := machine{SKU: s, price: unpriced, region: p.settings.Region}
	if m.region == "" {
		m.region = p.catalog.ReferenceRegion(s.Cloud)
	}
	if price, known := s.Prices[m.region]; known {
		m.price = price
	}
	m.gpu, _ = p.catalog.GPU(s.GPU) // the catalogue checked that the GPU exists; a machine may have none
	return m
}

// Plan returns the best plan for a request, or an *InfeasibleError.
func (p *Planner) Plan(r Request) (Plan, error) {
	d, err := p.demand(r)
	if err != nil {
		return Plan{}, err
	}
	found, err := p.search(d, r.Constraints)
	if err != nil {
		return Plan{}, err
	}
	if len(found.options) == 0 {
		return Plan{}, p.infeasible(r, d, found)
	}
	return found.plan(d), nil
}

// demand is what machines are wanted for.
type demand interface {
	// place lays the demand out on a machine. Where that is impossible, verdict says why.
	place(m machine) (o option, verdict string)
	// nodes is the number of machines that are needed.
	nodes() int
	// warnings about the request, whatever machine is chosen.
	warnings() []string
}

// option is a machine type that meets the demand.
type option struct {
	machine machine
	// layout is set where a model is served, zero for a template.
	layout layout
	// gpus that are used on each machine.
	gpus int
	// price per hour of all machines; negative where it is not known.
	price        float64
	capacityType v1beta1.CapacityType
	warnings     []string
}

// outcome is what a search found.
type outcome struct {
	// options that meet the demand and the constraints, best first.
	options []option
	// tooDear are options that only the price limit forbids, best first.
	tooDear []option
	// tried counts the machines that the constraints allow, except the price limit.
	tried int
	// misfits are the machines that were tried and do not meet the demand, and rejected all that are
	// not among options; both in the order of the planner's machines.
	misfits  []Verdict
	rejected []Verdict
	// warnings about the constraints.
	warnings []string
	zones    []string
}

// search places the demand on every machine that the constraints allow.
func (p *Planner) search(d demand, c Constraints) (outcome, error) {
	candidates, warnings, err := p.candidates(c)
	if err != nil {
		return outcome{}, err
	}
	found := outcome{warnings: warnings, zones: distinct(c.Zones)}
	for _, m := range candidates {
		consider(d, c, m, &found)
	}
	slices.SortFunc(found.options, byRank)
	slices.SortFunc(found.tooDear, byRank)
	return found, nil
}

// consider tries one machine and adds it to where it belongs.
func consider(d demand, c Constraints, m machine, found *outcome) {
	reject := func(reason string) Verdict {
		v := Verdict{
			InstanceType: m.Name, Nodes: d.nodes(), HourlyPrice: total(m.price, d.nodes()),
			Reason: clip(reason, longestVerdict),
		}
		found.rejected = append(found.rejected, v)
		return v
	}
	capacityType, reason := allowed(c, m, d.nodes())
	if reason != "" {
		reject(reason)
		return
	}
	found.tried++
	o, reason := d.place(m)
	if reason != "" {
		found.misfits = append(found.misfits, reject(reason))
		return
	}
	o.machine, o.capacityType, o.price = m, capacityType, total(m.price, d.nodes())
	o.warnings = append(o.warnings, priceWarnings(capacityType)...)
	if reason := tooDear(c, m, o.price); reason != "" {
		reject(reason)
		found.tooDear = append(found.tooDear, o)
		return
	}
	found.options = append(found.options, o)
}

// priceWarnings tells where the quoted price is not what will be paid.
func priceWarnings(t v1beta1.CapacityType) []string {
	switch t {
	case v1beta1.CapacitySpot:
		return []string{"the price is that of on-demand machines: the catalogue has no spot prices, which are lower"}
	case v1beta1.CapacityReserved:
		return []string{"the price is that of on-demand machines: a reservation is paid for already"}
	default:
		return nil
	}
}
