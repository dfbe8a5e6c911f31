// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
)

// buysPlainly says that machines of a node class are bought on demand, wherever there is room, and that
// nobody can choose otherwise.
func buysPlainly(class v1beta1.NodeClassReference) bool {
	return refusal.ProviderOf(class.Group, class.Kind) == refusal.GPUProvisioner
}

// restrictToClass leaves out of a plan how machines of a node class cannot be bought.
func (r *Reconciler) restrictToClass(c *planner.Constraints, class v1beta1.NodeClassReference) {
	if !buysPlainly(class) {
		return
	}
	for _, known := range r.skus() {
		for _, capacityType := range []v1beta1.CapacityType{v1beta1.CapacityReserved, v1beta1.CapacitySpot} {
			c.Excluded = append(c.Excluded, planner.Exclusion{
				InstanceType: known.Name, CapacityType: capacityType, Reason: "gpu-provisioner buys machines on demand only",
			})
		}
	}
}

// placeProblem says why machines of a node class cannot be had where a plan wants them.
func placeProblem(plan *planner.Plan, class v1beta1.NodeClassReference) string {
	if !buysPlainly(class) || len(plan.Zones) == 0 {
		return ""
	}
	return fmt.Sprintf("resource.placement.zones: gpu-provisioner cannot choose a zone (%s): leave zones out",
		strings.Join(plan.Zones, ", "))
}
