// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Keep is the transform of a cache of NodeClaims. It drops the resources of the machine: the Node has them.
func Keep(object any) (any, error) {
	if claim, ok := object.(*karpv1.NodeClaim); ok {
		claim.ManagedFields = nil
		claim.Status.Capacity, claim.Status.Allocatable = nil, nil
	}
	return object, nil
}
