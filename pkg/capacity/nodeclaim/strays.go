// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// KAITO lists and deletes the claims of KAITO's controller for Workspaces. No cache has them.
type KAITO struct{ Provisioner *Provisioner }

// Strays returns the claims that are not being deleted, with the Workspaces in their labels.
func (k KAITO) Strays(ctx context.Context) ([]capacity.MachineCost, error) {
	claims := &karpv1.NodeClaimList{}
	if err := k.Provisioner.live.List(ctx, claims, client.HasLabels{v1beta1.LabelWorkspace, v1beta1.LabelWorkspaceNamespace}); err != nil {
		return nil, fmt.Errorf("listing KAITO's NodeClaims: %w", err)
	}
	claims.Items = slices.DeleteFunc(claims.Items, func(claim karpv1.NodeClaim) bool {
		_, isOurs := claim.Labels[v1beta1.LabelWorkspaceUID]
		return isOurs || claim.Labels[v1beta1.LabelManagedBy] == v1beta1.ManagedBy || !claim.DeletionTimestamp.IsZero()
	})
	var out []capacity.MachineCost
	for i := range claims.Items {
		labels := claims.Items[i].Labels
		out = append(out, capacity.MachineCost{
			Machine: claims.Items[i].Name,
			Owner:   capacity.Owner{Namespace: labels[v1beta1.LabelWorkspaceNamespace], Name: labels[v1beta1.LabelWorkspace]},
		})
	}
	return out, nil
}

// Delete deletes a claim.
func (k KAITO) Delete(ctx context.Context, name string) error {
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreNotFound(k.Provisioner.cached.Delete(ctx, claim)); err != nil {
		return fmt.Errorf("deleting NodeClaim %q: %w", name, err)
	}
	return nil
}
