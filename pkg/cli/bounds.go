// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// outOfBounds returns a message about a field that the API server would refuse. It checks only fields that affect a
// plan.
func outOfBounds(ws *v1beta1.Workspace) string {
	if count := ws.Resource.Count; count != nil && (*count < 1 || *count > 1000) {
		return fmt.Sprintf("resource.count is %d: it must be between 1 and 1000", *count)
	}
	if problem := badPlacement(&ws.Resource); problem != "" || ws.Inference == nil || ws.Inference.Objectives == nil {
		return problem
	}
	return badObjectives(ws.Inference.Objectives)
}

func badPlacement(resource *v1beta1.ResourceSpec) string {
	placement := resource.Placement
	if placement == nil {
		return ""
	}
	if resource.InstanceType != "" && len(placement.InstanceTypes) > 0 {
		return "resource.placement.instanceTypes and resource.instanceType cannot be combined: keep one"
	}
	for i, capacity := range placement.CapacityTypes {
		if !slices.Contains(capacityTypes(), string(capacity)) {
			return fmt.Sprintf("resource.placement.capacityTypes[%d] is %q: it must be %s",
				i, shorten(string(capacity)), orList(capacityTypes()))
		}
	}
	sources := []v1beta1.NodeSource{"", v1beta1.NodeSourceAny, v1beta1.NodeSourceExisting, v1beta1.NodeSourceProvisioned}
	if !slices.Contains(sources, placement.NodeSource) {
		return fmt.Sprintf("resource.placement.nodeSource is %q: it must be Any, Existing or Provisioned", shorten(string(placement.NodeSource)))
	}
	return ""
}

func badObjectives(o *v1beta1.ObjectivesSpec) string {
	for _, field := range []struct {
		name  string
		value *int32
	}{
		{"maxModelLen", o.MaxModelLen},
		{"concurrency", o.Concurrency},
		{"inputTokens", o.InputTokens},
		{"outputTokens", o.OutputTokens},
	} {
		if field.value != nil && *field.value < 1 {
			return fmt.Sprintf("inference.objectives.%s is %d: it must be at least 1", field.name, *field.value)
		}
	}
	for _, field := range []struct {
		name  string
		value *metav1.Duration
	}{
		{"timeToFirstToken", o.TimeToFirstToken},
		{"timePerOutputToken", o.TimePerOutputToken},
	} {
		if field.value != nil && field.value.Duration < time.Nanosecond {
			return fmt.Sprintf("inference.objectives.%s is %s: it must be above zero, such as 100ms", field.name, field.value.Duration)
		}
	}
	if o.OptimizeFor != "" && !slices.Contains(aims(), string(o.OptimizeFor)) {
		return fmt.Sprintf("inference.objectives.optimizeFor is %q: it must be %s", shorten(string(o.OptimizeFor)), orList(aims()))
	}
	return ""
}

// capacityTypes returns all capacity types.
func capacityTypes() []string {
	return []string{string(v1beta1.CapacityReserved), string(v1beta1.CapacityOnDemand), string(v1beta1.CapacitySpot)}
}

// aims returns the values of optimizeFor.
func aims() []string {
	return []string{
		string(v1beta1.OptimizeForBalanced), string(v1beta1.OptimizeForCost), string(v1beta1.OptimizeForLatency),
		string(v1beta1.OptimizeForThroughput),
	}
}
