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
	market
	// engines that can be run by lower-case name; pointers, because a copy of an engine is large.
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
