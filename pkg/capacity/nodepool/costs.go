// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// MachineCosts returns the cost of every machine that we requested, from the cache: a pool may buy its missing machines at
// any time, and a deleted machine costs money until it is gone.
func (p *Provisioner) MachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return costs(ctx, p.cached)
}

// LiveMachineCosts returns the same, from the API server.
func (p *Provisioner) LiveMachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return costs(ctx, p.live)
}

func costs(ctx context.Context, from client.Reader) ([]capacity.MachineCost, error) {
	all, err := ours(ctx, from, nil)
	if err != nil {
		return nil, err
	}
	var out []capacity.MachineCost
	for _, s := range all.slots(nil) {
		cost := capacity.MachineCost{
			Owner: nodeclaim.OwnerOf(s.labels), Machine: s.Name, UID: s.UID, InstanceType: s.InstanceType,
			HourlyPrice: s.HourlyPrice, Launched: s.Launched, Leaving: s.Deleting, CapacityType: s.CapacityType,
		}
		if s.Launched {
			cost.LaunchedAt = s.Words.Launched.Since
		}
		out = append(out, cost)
	}
	return out, nil
}

// Owners returns the owners of our objects among all Workspaces of a name: several if a Workspace was deleted and
// created again.
func (p *Provisioner) Owners(ctx context.Context, namespace, name string) ([]capacity.Owner, error) {
	held, err := ours(ctx, p.cached, client.MatchingLabels{
		v1beta1.LabelMachineWorkspaceNamespace: namespace, v1beta1.LabelMachineWorkspaceName: name,
	})
	if err != nil {
		return nil, err
	}
	return held.owners(), nil
}

func (h holding) owners() []capacity.Owner {
	var owners []capacity.Owner
	for i := range h.pools {
		owners = append(owners, nodeclaim.OwnerOf(h.pools[i].Labels))
	}
	for i := range h.claims {
		owners = append(owners, nodeclaim.OwnerOf(h.claims[i].Labels))
	}
	return capacity.Distinct(owners)
}

// Holders returns all Workspaces with pools, or with claims of a pool, from the API server.
func (p *Provisioner) Holders(ctx context.Context) ([]capacity.Owner, error) {
	claims, err := nodeclaim.Made(ctx, p.live, "!"+v1beta1.LabelMachineOrdinal)
	if err != nil {
		return nil, err
	}
	pools := &karpv1.NodePoolList{}
	if err := p.live.List(ctx, pools, client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy}); err != nil {
		return nil, fmt.Errorf("listing NodePools: %w", err)
	}
	return holding{pools: pools.Items, claims: claims}.owners(), nil
}

// Events returns the events about claims. A machine without a claim has no UID.
func (p *Provisioner) Events(ctx context.Context, machines []types.UID) ([]refusal.Event, error) {
	claims := slices.DeleteFunc(slices.Clone(machines), func(uid types.UID) bool { return uid == "" })
	return p.claims.Events(ctx, claims)
}

// ours reads all of our objects with matching labels.
func ours(ctx context.Context, from client.Reader, labels client.MatchingLabels) (holding, error) {
	managed := client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
	pools, claims := &karpv1.NodePoolList{}, &karpv1.NodeClaimList{}
	if err := from.List(ctx, pools, managed, labels); err != nil {
		return holding{}, fmt.Errorf("listing NodePools: %w", err)
	}
	if err := from.List(ctx, claims, managed, labels); err != nil {
		return holding{}, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return holding{pools: pools.Items, claims: claims.Items}, nil
}
