// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// ChangesOnlyAdapters reports whether inputs differ from those of a revision only in the list of adapters, and the pods
// of the revision change their adapters while the engine runs.
func (r *Revision) ChangesOnlyAdapters(in render.Inputs) bool {
	return r.LiveAdapters && r.Inputs != nil && in.Inference != nil && r.Inputs.Inference != nil &&
		equality.Semantic.DeepEqual(withoutAdapters(in), withoutAdapters(*r.Inputs))
}

func withoutAdapters(in render.Inputs) render.Inputs {
	in.Inference = workload.WithoutAdapters(in.Inference)
	return in
}

// AdapterObstacle explains why the running pods of a revision cannot take a list of adapters; empty if they can.
func (r *Revision) AdapterObstacle(list []v1beta1.AdapterSpec) string {
	if problem := workload.LiveObstacle(list); problem != "" {
		return problem
	}
	if len(list) > r.Plan.AdapterSlots {
		return fmt.Sprintf("%d adapters need as many slots, and the plan has memory for %d: reserve more in max-loras of inference.engine.args",
			len(list), r.Plan.AdapterSlots)
	}
	for _, spec := range list {
		if slices.Contains(r.ServedNames, spec.Source.Name) {
			return fmt.Sprintf("%s is a name of the model", spec.Source.Name)
		}
	}
	has, needs := workload.PullSecretOf(r.Inputs.Inference.Adapters), workload.PullSecretOf(list)
	if oci := r.Inputs.Inference.Weights; oci != nil && oci.OCI != nil && oci.OCI.PullSecret != "" {
		has = oci.OCI.PullSecret
	}
	if needs != "" && needs != has {
		return fmt.Sprintf("the pod mounts Secret %s when it starts", needs)
	}
	return ""
}

// IsNewer reports whether one revision was stored after another. A nil revision is not newer.
func (h History) IsNewer(one, other *Revision) bool {
	if one == nil || other == nil {
		return false
	}
	a, b := h.Object(one.Name), h.Object(other.Name)
	return a != nil && b != nil && a.Revision > b.Revision
}
