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

// spares reports whether a machine does without its broken GPUs: its node offers fewer than it should, so pods get only the
// others, and these are enough for the plans.
func spares(machine *capacity.Machine, plans []*render.Revision) bool {
	needed, has := gpusOf(machine, plans)
	return (machine.Shortage != "" || machine.GPUs < has) && machine.GPUs >= needed
}

// gpusOf returns how many GPUs pods request on a machine, and how many it should have: by the plans that its kind fits, or
// by all plans if it fits none.
func gpusOf(machine *capacity.Machine, plans []*render.Revision) (needed, has int) {
	fitting := slices.DeleteFunc(slices.Clone(plans), func(made *render.Revision) bool { return !Fits(machine, made) })
	if len(fitting) == 0 {
		fitting = plans
	}
	for _, made := range fitting {
		needed, has = max(needed, made.Plan.GPUsPerNode), max(has, made.Plan.MachineGPUs)
	}
	return needed, has
}

// noteShortage records since when the node of a machine lacks GPUs that its pods need, and adds that to the machine's fault. No other
// object has that time: the attempt keeps it, so a restart of the controller does not begin anew. It counts only for
// machines of an attempt whose machines were all usable once; before that, the deadlines of the start apply. A node that is
// not Ready changes nothing, and has no such fault: its status is old, and other deadlines apply.
func (a Attempts) noteShortage(machine *capacity.Machine, isSpared bool, now time.Time) {
	claim := a.usable(machine)
	switch {
	case claim == nil || !isReporting(machine):
		return
	case machine.Shortage == "" || isSpared:
		claim.GPUsMissingSince = nil
		return
	case claim.GPUsMissingSince == nil:
		claim.GPUsMissingSince = new(Seconds(now))
	}
	machine.Fault = nodehealth.Sooner(machine.Fault, nodehealth.Lasting(machine.Shortage, claim.GPUsMissingSince.Time))
}

// isReporting reports whether the status of a machine's node is up to date.
func isReporting(machine *capacity.Machine) bool {
	return machine.NodeReady && machine.Initialized && !machine.Deleting
}

// usable returns the record of a machine in an open attempt whose machines were all usable once; nil if there is none.
func (a Attempts) usable(machine *capacity.Machine) *v1beta1.AttemptClaim {
	for _, open := range a.Open() {
		i := slices.IndexFunc(open.Claims, func(claim v1beta1.AttemptClaim) bool {
			return claim.UID != "" && claim.UID == string(machine.UID)
		})
		if i >= 0 && open.ReadyTime != nil {
			return &open.Claims[i]
		}
	}
	return nil
}
