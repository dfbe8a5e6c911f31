// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// KeepEndpoints is the transform for a cache of EndpointSlices. It keeps the UIDs of the pods that are ready, and drops
// the addresses.
func KeepEndpoints(object any) (any, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil
	}
	slice.ManagedFields, slice.Annotations, slice.Ports = nil, nil, nil
	var kept []discoveryv1.Endpoint
	for i := range slice.Endpoints {
		if from := &slice.Endpoints[i]; isReadyEndpoint(from) {
			target := *from.TargetRef
			target.FieldPath, target.ResourceVersion = "", ""
			kept = append(kept, discoveryv1.Endpoint{TargetRef: &target})
		}
	}
	slice.Endpoints = kept
	return slice, nil
}

// isReadyEndpoint reports whether an endpoint is a pod that gets requests. Ready is optional, and unset means true.
func isReadyEndpoint(of *discoveryv1.Endpoint) bool {
	return of.TargetRef != nil && of.TargetRef.UID != "" && (of.Conditions.Ready == nil || *of.Conditions.Ready)
}

// ReadyEndpoints returns the UIDs of the pods that get the requests to a Service, sorted.
func ReadyEndpoints(of ...discoveryv1.EndpointSlice) []types.UID {
	var out []types.UID
	for i := range of {
		for j := range of[i].Endpoints {
			if endpoint := &of[i].Endpoints[j]; isReadyEndpoint(endpoint) {
				out = append(out, endpoint.TargetRef.UID)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// EndpointOf returns the name of the Workspace whose Service has an EndpointSlice; empty if it belongs to another
// Service. The slices of a Service have its labels.
func EndpointOf(slice *discoveryv1.EndpointSlice) string {
	name := slice.Labels[v1beta1.LabelWorkspace]
	if slice.Labels[discoveryv1.LabelServiceName] != name {
		return ""
	}
	return name
}
