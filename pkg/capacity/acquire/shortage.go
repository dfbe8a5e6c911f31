// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/render"
)

// noteGPUs adds the defects of a machine's GPUs to its fault, and records since when they concern its pods. The
// attempt keeps that time, because no other object has it: a restart of the controller does not reset it. If no pod
// needed the broken GPUs until now, the time begins now. A restart of the device plugin may show all GPUs or none for
// a while.
//
// Only machines that were usable once have this record. Before that, the start-up deadlines apply. A node that is not
// Ready changes no record, and does not count as lacking GPUs: its status is stale, and other deadlines apply.
func (a Attempts) noteGPUs(machine *capacity.Machine, plans []*render.Revision, now time.Time) {
	claim, isSpared := a.usable(machine), spares(machine, plans)
	if claim != nil && isReporting(machine) {
		recordGPUs(claim, machine, isSpared, now)
	}
	if isSpared {
		machine.Spared = machine.Shortage
		return
	}
	fault := machine.GPUFault
	if claim != nil && claim.GPUsMissingSince != nil {
		since := claim.GPUsMissingSince.Time
		if since.After(fault.Since) {
			fault.Since = since
		}
		if isReporting(machine) && machine.Shortage != "" {
			fault = nodehealth.Sooner(fault, nodehealth.Lasting(machine.Shortage, since))
		}
	}
	machine.Fault = nodehealth.Sooner(machine.Fault, fault)
}

// recordGPUs records since when GPUs are missing, and whether the plans need them.
func recordGPUs(claim *v1beta1.AttemptClaim, machine *capacity.Machine, isSpared bool, now time.Time) {
	isBroken := machine.Shortage != "" || machine.GPUFault.Message != ""
	switch {
	case isSpared:
		claim.GPUsMissingSince = nil
		if claim.GPUsSparedSince == nil {
			claim.GPUsSparedSince = new(Seconds(now))
		}
	case !isBroken:
		claim.GPUsMissingSince, claim.GPUsSparedSince = nil, nil
	case claim.GPUsMissingSince == nil && (machine.Shortage != "" || claim.GPUsSparedSince != nil):
		claim.GPUsMissingSince, claim.GPUsSparedSince = new(Seconds(now)), nil
	}
}

// spares reports whether a machine can do without its broken GPUs: its node offers only the others to pods, and these
// are enough for the plans.
func spares(machine *capacity.Machine, plans []*render.Revision) bool {
	needed, has := gpusOf(machine, plans)
	return (machine.Shortage != "" || machine.GPUs < has) && machine.GPUs >= needed && needed > 0
}

// gpusOf returns how many GPUs the pods request on a machine, and how many it should have. Both come from the plans
// that the machine fits, and are 0 if it fits none.
func gpusOf(machine *capacity.Machine, plans []*render.Revision) (needed, has int) {
	for _, made := range plans {
		if Fits(machine, made) {
			needed, has = max(needed, made.Plan.GPUsPerNode), max(has, made.Plan.MachineGPUs)
		}
	}
	return needed, has
}

// isReporting reports whether the status of a machine's node is up to date.
func isReporting(machine *capacity.Machine) bool {
	return machine.NodeReady && machine.Initialized && !machine.Deleting
}

// usable returns the record of a machine of an open attempt that was usable once; nil if there is none.
func (a Attempts) usable(machine *capacity.Machine) *v1beta1.AttemptClaim {
	for _, open := range a.Open() {
		i := slices.IndexFunc(open.Claims, func(claim v1beta1.AttemptClaim) bool {
			return claim.UID != "" && claim.UID == string(machine.UID)
		})
		if i >= 0 && wasUsable(open, &open.Claims[i]) {
			return &open.Claims[i]
		}
	}
	return nil
}
