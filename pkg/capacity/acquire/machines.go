// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
)

// Machines are the machines of one Workspace in the caches, at any stage.
type Machines []capacity.Machine

// Named returns the machine with that name, or nil.
func (m Machines) Named(name string) *capacity.Machine {
	for i := range m {
		if m[i].Name == name {
			return &m[i]
		}
	}
	return nil
}

// Standing returns the machines that are not being deleted.
func (m Machines) Standing() Machines {
	var out Machines
	for _, machine := range m {
		if !machine.Deleting {
			out = append(out, machine)
		}
	}
	return out
}

// Leaving returns the names of the machines that are being deleted, sorted.
func (m Machines) Leaving() []string {
	var names []string
	for i := range m {
		if m[i].Deleting {
			names = append(names, m[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// Of returns the machines of an attempt that are not being deleted.
func (m Machines) Of(attempt *v1beta1.Attempt) Machines {
	return slices.DeleteFunc(m.Standing(), func(machine capacity.Machine) bool {
		return !slices.Contains(attempt.NodeClaims, machine.Name)
	})
}

// Price returns the sum of the prices of the machines with these names, in USD per hour; negative if one is unknown.
func (m Machines) Price(names []string) float64 {
	sum := 0.0
	for i := range m {
		if !slices.Contains(names, m[i].Name) {
			continue
		}
		if m[i].HourlyPrice < 0 {
			return -1
		}
		sum += m[i].HourlyPrice
	}
	return sum
}

// AreRetired reports whether a retired back end manages one of the machines. Such a back end creates no more machines.
func (m Machines) AreRetired() bool {
	return slices.ContainsFunc(m, func(machine capacity.Machine) bool { return machine.Retired })
}

// AreUsable reports whether enough machines for a plan are initialized, and all of these have a Ready node with enough
// GPUs.
func (m Machines) AreUsable(plan *planner.Plan) bool {
	ready := 0
	for i := range m {
		switch machine := &m[i]; {
		case machine.NodeName == "" || !machine.Initialized:
			continue
		case !machine.NodeReady || machine.GPUs < plan.GPUsPerNode:
			return false
		}
		ready++
	}
	return ready >= plan.Nodes
}

// Suffice reports whether the machines of an attempt are enough for a plan.
func (m Machines) Suffice(attempt *v1beta1.Attempt, made *render.Revision) bool {
	standing := 0
	for _, machine := range m.Of(attempt) {
		if Fits(&machine, made) {
			standing++
		}
	}
	return standing >= made.Plan.Nodes
}

// Suffice reports whether the machines of one open attempt are enough for a plan, so that nothing has to be bought.
func (a Attempts) Suffice(machines Machines, made *render.Revision) bool {
	return slices.ContainsFunc(a.Open(), func(open *v1beta1.Attempt) bool { return machines.Suffice(open, made) })
}

// AreWanted reports whether an open attempt fits a plan: none of its machines may contradict the plan. Unless all of
// them stand in the plan's zones, its request must fit, too. names are the names of its machines.
func (m Machines) AreWanted(attempt *v1beta1.Attempt, names []string, made *render.Revision) bool {
	plan := &made.Plan
	isPlace := attempt.Zone == Place(plan.Zones)
	standing := 0
	for i := range m {
		machine := &m[i]
		if !slices.Contains(names, machine.Name) {
			continue
		}
		if !Fits(machine, made) {
			return false
		}
		if !machine.Deleting && (isPlace || machine.Zone != "") {
			standing++
		}
	}
	return standing == len(names) ||
		isPlace && attempt.InstanceType == plan.InstanceType && attempt.CapacityType == plan.CapacityType
}

// Fits reports whether a machine matches a plan's request and accepts its pods. A node class counts only if the
// Workspace names one: a new default of the installation replaces no machine.
func Fits(machine *capacity.Machine, made *render.Revision) bool {
	plan, class := &made.Plan, made.NodeClass
	return machine.InstanceType == plan.InstanceType && machine.CapacityType == plan.CapacityType &&
		(len(plan.Zones) == 0 || machine.Zone == "" || slices.Contains(plan.Zones, machine.Zone)) &&
		(class == nil || machine.NodeClass == (v1beta1.NodeClassReference{}) || machine.NodeClass == *class) &&
		(!machine.Dedicated || made.ToleratesDedication())
}

// Place returns the zone of a request as an attempt records it. Several zones for the provisioner to choose from are a
// place of their own.
func Place(zones []string) string {
	return strings.Join(slices.Sorted(slices.Values(zones)), ",")
}
