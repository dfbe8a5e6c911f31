// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evidence gives measurements to the controller's planner: the administrator's calibration files, and the
// starts and speeds of engines in a Workspace's namespace.
//
// It decides when files are read, which starts count, and reports refused files. It must not know the form of a file,
// nor the effect of a run on a plan.
package evidence

import (
	"sync/atomic"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Planner passes requests to the current planner. It implements planning.Planner.
type Planner struct {
	current atomic.Pointer[planner.Planner]
}

// NewPlanner returns a Planner that passes requests to first.
func NewPlanner(first *planner.Planner) *Planner {
	out := &Planner{}
	out.current.Store(first)
	return out
}

// Plan implements planning.Planner.
func (p *Planner) Plan(request planner.Request) (planner.Plan, error) {
	return p.current.Load().Plan(request)
}

// Quote implements planning.Planner.
func (p *Planner) Quote(accepted planner.Plan, constraints planner.Constraints) (planner.Plan, string) {
	return p.current.Load().Quote(accepted, constraints)
}

// MachinePrice returns the price per hour of one machine in USD; negative if unknown.
func (p *Planner) MachinePrice(instanceType string, t v1beta1.CapacityType) float64 {
	return p.current.Load().MachinePrice(instanceType, t)
}
