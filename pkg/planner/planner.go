// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// Settings of the installation.
type Settings struct {
	// Clouds to buy from; empty means every cloud of the catalogue.
	Clouds []string
	// Region of the prices; empty means each cloud's reference region.
	Region string
	// RegionUnknown is why the reference region is used instead of the machines' unknown region; empty if Region is
	// set, or was left out on purpose.
	RegionUnknown string
	// Engines at hand; empty means every engine of the catalogue.
	Engines []string
	// SingleNode: a model cannot spread over several machines.
	SingleNode bool
	// NoRDMA: pods cannot use RDMA between machines, whatever the machines have.
	NoRDMA bool
	// Provisioner of the machines, for example karpenter; empty means any.
	Provisioner string
	// OSDiskGiB of bought machines; 0 means unknown. LocalDisk: pods and images live on the machines' local disks
	// instead, if those are larger.
	OSDiskGiB int
	LocalDisk bool
}

// Planner plans from one catalogue. It keeps no state between plans, so it may be shared.
type Planner struct {
	market
	// engines at hand by lower-case name; pointers, because a copy of an engine is large.
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
