// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strconv"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Leaner returns a copy of a Workspace, and the edits that lead to it. The copy accepts any machines that sustain a
// rate of requests. Its zones, capacity types, limits, context length, precision and floors stay.
func Leaner(ws *v1beta1.Workspace, requestsPerSecond float64) (*v1beta1.Workspace, []string) {
	out, changed := ws.DeepCopy(), []string(nil)
	drop := func(field string, isSet bool) {
		if isSet {
			changed = append(changed, "remove "+field)
		}
	}
	drop("resource.instanceType", out.Resource.InstanceType != "")
	drop("resource.count", out.Resource.Count != nil && *out.Resource.Count > 1)
	out.Resource.InstanceType, out.Resource.Count = "", nil
	if placement := out.Resource.Placement; placement != nil {
		drop("resource.placement.instanceTypes", len(placement.InstanceTypes) > 0)
		drop("resource.placement.accelerators", len(placement.Accelerators) > 0)
		placement.InstanceTypes, placement.Accelerators = nil, nil
	}
	if out.Inference.Objectives == nil {
		out.Inference.Objectives = &v1beta1.ObjectivesSpec{}
	}
	objectives := out.Inference.Objectives
	drop("inference.objectives.concurrency", objectives.Concurrency != nil)
	objectives.Concurrency = nil
	objectives.RequestsPerSecond = strconv.FormatFloat(requestsPerSecond, 'f', -1, 64)
	return out, append(changed, "set inference.objectives.requestsPerSecond to "+strconv.Quote(objectives.RequestsPerSecond))
}
