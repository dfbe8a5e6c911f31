// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	"context"
	"fmt"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// MachineCosts returns the cost of every machine that we created, from the cache. A machine costs money until its
// claim is gone.
func (p *Provisioner) MachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return costs(ctx, p.cached)
}

// LiveMachineCosts returns the same, from the API server.
func (p *Provisioner) LiveMachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return costs(ctx, p.live)
}

func costs(ctx context.Context, from client.Reader) ([]capacity.MachineCost, error) {
	claims := &karpv1.NodeClaimList{}
	if err := from.List(ctx, claims, client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy}); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	out := make([]capacity.MachineCost, 0, len(claims.Items))
	for i := range claims.Items {
		out = append(out, MachineCostOf(&claims.Items[i]))
	}
	return out, nil
}

// MachineCostOf returns the cost of a claim's machine, with its Workspace.
func MachineCostOf(claim *karpv1.NodeClaim) capacity.MachineCost {
	launched := words(claim.StatusConditions(), karpv1.ConditionTypeLaunched)
	out := capacity.MachineCost{
		Owner:        OwnerOf(claim.Labels),
		Machine:      claim.Name,
		UID:          claim.UID,
		InstanceType: requirementValue(claim, corev1.LabelInstanceTypeStable),
		HourlyPrice:  PriceOf(claim.Annotations),
		Launched:     launched.Status == refusal.StatusTrue,
		Leaving:      !claim.DeletionTimestamp.IsZero(),
		CapacityType: capacityTypeOf(claim),
	}
	if out.Launched {
		out.LaunchedAt = launched.Since
	}
	return out
}

// PriceOf returns the price in a machine's annotations, in USD per hour; negative if it is missing or invalid.
func PriceOf(annotations map[string]string) float64 {
	price, err := strconv.ParseFloat(annotations[v1beta1.AnnotationHourlyPrice], 64)
	if err != nil || !(price >= 0) || math.IsInf(price, 0) {
		return -1
	}
	return price
}

// OwnerOf returns the Workspace in a machine's labels.
func OwnerOf(labels map[string]string) capacity.Owner {
	return capacity.Owner{
		Namespace: labels[v1beta1.LabelMachineWorkspaceNamespace],
		Name:      labels[v1beta1.LabelMachineWorkspaceName],
		UID:       types.UID(labels[v1beta1.LabelWorkspaceUID]),
	}
}

// Annotations returns the annotations of a requested machine. They include its price, so the claims alone show the
// spending.
func Annotations(req capacity.Request) map[string]string {
	out := map[string]string{v1beta1.AnnotationDoNotDisrupt: "true"}
	if req.HourlyPrice >= 0 {
		out[v1beta1.AnnotationHourlyPrice] = strconv.FormatFloat(req.HourlyPrice, 'f', -1, 64)
	}
	return out
}
