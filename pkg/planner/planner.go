// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
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
	// RegionUnknown says why the reference region stands for the one that machines are bought in, which
	// nobody knows; empty where Region is set, or where it was left out on purpose.
	RegionUnknown string
	// Engines that can be run; empty means every engine of the catalogue.
	Engines []string
	// SingleNode says that a model cannot be spread over several machines.
	SingleNode bool
	// NoRDMA says that pods cannot use RDMA between machines, whatever the machines have.
	NoRDMA bool
	// Provisioner that launches the machines, for example karpenter; empty means any.
	Provisioner string
	// OSDiskGiB of the machines that are bought; 0 means that their disk is not known. LocalDisk says that
	// pods and images live on the machines' local disks instead, where they are larger.
	OSDiskGiB int
	LocalDisk bool
}

// Planner plans from one catalogue. It keeps no state between plans, so it may be shared.
type Planner struct {
	catalog  *catalog.Catalog
	settings Settings
	// machines of the allowed clouds, by cloud and name.
	machines []machine
	// engines that can be run by lower-case name; pointers, because a copy of an engine is large.
	engines map[string]*catalog.Engine
}

// machine is a machine type with its GPU and what it costs here.
type machine struct {
	sku.SKU
	gpu sku.GPU
	// price and spotPrice per hour, negative where the catalogue has none for the region.
	price, spotPrice float64
	region           string
	// there are the existing nodes that are such a machine, the first to be used first, and fullGPUs how
	// many GPUs each has, of which GPUs are free; nil for machines that are bought.
	there    []Node
	fullGPUs int
}

// unpriced is the price of what the catalogue has no price for.
const unpriced = -1

// New returns a planner.
func New(c *catalog.Catalog, settings Settings) *Planner {
	p := &Planner{catalog: c, settings: settings, engines: map[string]*catalog.Engine{}}
	for _, e := range c.Engines() {
		if len(settings.Engines) == 0 || slices.Contains(settings.Engines, e.Name) {
			p.engines[strings.ToLower(e.Name)] = &e
		}
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
	m := machine{SKU: s, price: unpriced, spotPrice: unpriced, region: p.settings.Region}
	if m.region == "" {
		m.region = p.catalog.ReferenceRegion(s.Cloud)
	}
	if price, known := s.Prices[m.region]; known {
		m.price = price
	}
	if price, known := s.SpotPrices[m.region]; known {
		m.spotPrice = price
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
	found, err := p.find(d, r)
	if err != nil {
		return Plan{}, err
	}
	if len(found.options) == 0 {
		return Plan{}, p.infeasible(r, found)
	}
	plan := found.plan(d)
	plan.Advice = p.advice(r, d, found)
	return plan, nil
}

// option is a machine type that meets the demand.
type option struct {
	machine *machine
	// layout is set where a model is served, zero for a template.
	layout layout
	// nodes and the gpus that are used on each of them.
	nodes, gpus int
	// price per hour of all machines; negative where it is not known.
	price float64
	// level is the lowest price of which this one is less than a cent away, and standing what the price is worth.
	level        float64
	standing     standing
	capacityType v1beta1.CapacityType
	warnings     []string
	// nodeNames of the existing nodes that are used; nil where machines are bought.
	nodeNames []string
}

// perMillion is the price of a million output tokens in USD; negative where it is not known.
func (o *option) perMillion() float64 {
	return perMillion(o.price, o.layout.pace.OutputTokensPerSecond)
}

// perMillion is the price of a million tokens in USD at a price per hour and a number of tokens per second; negative
// where one of them is not known.
func perMillion(price, speed float64) float64 {
	if price < 0 || speed <= 0 {
		return unpriced
	}
	return price / 3600 / speed * 1e6
}

// outcome is what a search found.
type outcome struct {
	// options that meet the demand and the constraints, best first.
	options []*option
	// usual is the best option with sequences of the usual length, and short the demand of the options; both nil if
	// the options have the usual length.
	usual *option
	short *modelDemand
	// tooDear are options that only the price limit forbids, cheapest first.
	tooDear []*option
	// unpriced are options that are not considered because nobody knows their price.
	unpriced []*option
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

// rank puts options in order, best first.
func (found *outcome) rank(d demand) {
	level(found.options)
	level(found.tooDear)
	if m, ok := d.(*modelDemand); ok {
		weigh(found.options, m)
	}
	slices.SortFunc(found.options, ranking(d))
	slices.SortFunc(found.tooDear, byPrice)
}

// consider tries one machine type and adds it to where it belongs.
func (p *Planner) consider(d demand, c Constraints, m *machine, found *outcome) {
	reject := func(nodes int, price float64, reason string) Verdict {
		v := Verdict{InstanceType: m.Name, Nodes: nodes, HourlyPrice: total(price, nodes), Reason: clip(reason, longestVerdict)}
		found.rejected = append(found.rejected, v)
		return v
	}
	capacityType, reason := p.allowed(c, m)
	if nodes := d.fewest(); reason == "" && c.MaxNodes > 0 && nodes > c.MaxNodes {
		reason = fmt.Sprintf("%d nodes are needed, at most %d are allowed", nodes, c.MaxNodes)
	}
	price := m.priceAs(capacityType)
	if reason != "" {
		reject(d.fewest(), m.price, reason)
		return
	}
	found.tried++
	o, refused := d.place(m)
	if o != nil {
		refused = refusal{o.nodes, p.lacksDisk(o, m)}
	}
	if refused.reason != "" {
		found.misfits = append(found.misfits, reject(refused.nodes, price, refused.reason))
		return
	}
	o.machine, o.capacityType, o.price = m, capacityType, total(price, o.nodes)
	o.warnings = append(o.warnings, p.priceWarnings(m, capacityType)...)
	if o.price < 0 && c.MaxHourlyPrice <= 0 && !isNamed(c, m) {
		found.unpriced = append(found.unpriced, o)
		reject(o.nodes, price, unknownPrice(m))
		return
	}
	if reason := tooDear(c, m, o.price); reason != "" {
		reject(o.nodes, price, reason)
		found.tooDear = append(found.tooDear, o)
		return
	}
	found.options = append(found.options, o)
}

// priceAs is the price per hour of one machine that is paid for in a way; negative where it is not known.
func (m *machine) priceAs(t v1beta1.CapacityType) float64 {
	switch {
	case t == v1beta1.CapacityReserved && m.Reserved:
		return 0
	case t == v1beta1.CapacitySpot && m.spotPrice >= 0:
		return m.spotPrice
	default:
		return m.price
	}
}

// MachinePrice returns the price per hour of one machine in USD; negative where it is not known.
func (p *Planner) MachinePrice(instanceType string, t v1beta1.CapacityType) float64 {
	at := slices.IndexFunc(p.machines, func(m machine) bool { return m.Name == instanceType })
	if at < 0 {
		return unpriced
	}
	return p.machines[at].priceAs(t)
}

// priceWarnings tells where the quoted price is not what will be paid.
func (p *Planner) priceWarnings(m *machine, t v1beta1.CapacityType) []string {
	var out []string
	switch {
	case t == v1beta1.CapacitySpot && m.spotPrice < 0:
		out = append(out, "the price is that of on-demand machines: the catalogue has no spot price for it, which is lower")
	case t == v1beta1.CapacityReserved && !m.Reserved:
		out = append(out, "the price is that of on-demand machines: a reservation is paid for already")
	}
	if p.settings.RegionUnknown != "" && m.priceAs(t) >= 0 {
		out = append(out, fmt.Sprintf("the price is that of %s, and this cluster's region is unknown (%s): "+
			"have the administrator set the chart's region", m.regionName(), p.settings.RegionUnknown))
	}
	return out
}

// lacksDisk says why the machine's disks do not hold weights and image.
func (p *Planner) lacksDisk(o *option, m *machine) string {
	if o.layout.form == nil || p.settings.OSDiskGiB == 0 {
		return ""
	}
	need, has := o.layout.diskGiB(), float64(p.settings.OSDiskGiB)
	if p.settings.LocalDisk {
		has = max(has, m.LocalDiskGiB)
	}
	if float64(need) <= has {
		return ""
	}
	return fmt.Sprintf("needs %d GiB of disk for image and weights, has %.0f: have the administrator give its NodeClass a larger OS disk",
		need, has)
}
