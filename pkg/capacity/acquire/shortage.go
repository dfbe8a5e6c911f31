// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

// NoteShortages records since when the nodes of machines lack usable GPUs, and adds that to the machines' faults. No other
// object has that time: the attempt keeps it, so a restart of the controller does not begin anew. It counts only for
// machines of an attempt whose machines were all usable once; before that, the deadlines of the start apply. A node that is
// not Ready changes nothing, and has no such fault: its status is old, and other deadlines apply.
func (a Attempts) NoteShortages(machines Machines, now time.Time) {
	for i := range machines {
		machine := &machines[i]
		claim := a.usable(machine)
		if claim == nil {
			continue
		}
		switch {
		case !machine.NodeReady || !machine.Initialized || machine.Deleting:
			continue
		case machine.Shortage == "":
			claim.GPUsMissingSince = nil
			continue
		case claim.GPUsMissingSince == nil:
			claim.GPUsMissingSince = new(Seconds(now))
		}
		machine.Fault = nodehealth.Sooner(machine.Fault, nodehealth.Lasting(machine.Shortage, claim.GPUsMissingSince.Time))
	}
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
