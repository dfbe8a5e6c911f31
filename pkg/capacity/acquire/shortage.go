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

// noteShortage records since when the node of a machine lacks usable GPUs, and adds that to the machine's fault. No other
// object has that time: the attempt keeps it, so a restart of the controller does not begin anew. It counts only for
// machines of an attempt whose machines were all usable once; before that, the deadlines of the start apply. A node that is
// not Ready changes nothing, and has no such fault: its status is old, and other deadlines apply.
func (a Attempts) noteShortage(machine *capacity.Machine, now time.Time) {
	claim := a.usable(machine)
	switch {
	case claim == nil || !isReporting(machine):
		return
	case machine.Shortage == "":
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
