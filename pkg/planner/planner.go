// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// Settings are the installation's.
type Settings struct {
	// Clouds to buy from; empty means every cloud of the catalogue.
	Clouds []string
	// Region of the prices; empty means each cloud's reference region.
	Region string
	// RegionUnknown is the reason why the machines' region is unknown and prices are the reference region's; empty if
	// Region is set, or was left out on purpose.
	RegionUnknown string
	// Engines that are available; empty means every engine of the catalogue.
	Engines []string
	// SingleNode: no model may spread over several machines.
	SingleNode bool
	// NoRDMA: pods cannot use RDMA, even if the machines have it.
	NoRDMA bool
	// Provisioner of the machines, for example karpenter; empty means any.
	Provisioner string
	// OSDiskGiB is the OS disk of bought machines; 0 means unknown. LocalDisk: pods and images use the machine's local
	// disk if that is larger.
	OSDiskGiB int
	LocalDisk bool
}

// Planner makes plans from one catalogue. It keeps no state between plans, so goroutines may share it.
type Planner struct {
	market
	// engines are the available ones by lower-case name. They are pointers, because a copy of an engine is large.
	engines map[string]*catalog.Engine
}

// New returns a planner.
func New(c *catalog.Catalog, settings Settings) *Planner {
	p := &Planner{market: market{catalog: c, settings: settings}, engines: map[string]*catalog.Engine{}}
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
