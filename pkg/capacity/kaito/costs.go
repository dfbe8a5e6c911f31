// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package kaito

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// adoptedIndex finds Workspaces with consent to their takeover.
const adoptedIndex = "kaito.adopted"

// IndexAdopted requests the index that Costs needs.
func IndexAdopted(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1beta1.Workspace{}, adoptedIndex, func(object client.Object) []string {
		if _, isSet := object.GetAnnotations()[v1beta1.AnnotationAdopted]; isSet {
			return []string{"true"}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing Workspaces that were taken over: %w", err)
	}
	return nil
}

// Costs adds KAITO's machines to the costs of a back end, for Workspaces that were taken over. The price is from the
// catalogue.
type Costs struct {
	capacity.CostSource

	// Workspaces reads from the cache with the index.
	Workspaces client.Reader
	Machines   interface {
		NodeClaims(ctx context.Context, workspace types.NamespacedName) ([]metav1.PartialObjectMetadata, error)
	}
	// Price returns the price of a machine type in USD per hour; negative if it is unknown.
	Price func(instanceType string, capacityType v1beta1.CapacityType) float64
}

// MachineCosts implements capacity.CostSource.
func (c *Costs) MachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return c.add(ctx, c.CostSource.MachineCosts)
}

// LiveMachineCosts implements capacity.CostSource. KAITO's machines do not come from this controller, so the cache suffices.
func (c *Costs) LiveMachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return c.add(ctx, c.CostSource.LiveMachineCosts)
}

func (c *Costs) add(ctx context.Context, others func(context.Context) ([]capacity.MachineCost, error)) ([]capacity.MachineCost, error) {
	out, err := others(ctx)
	if err != nil {
		return nil, err
	}
	list := &v1beta1.WorkspaceList{}
	if err := c.Workspaces.List(ctx, list, client.MatchingFields{adoptedIndex: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Workspaces that were taken over: %w", err)
	}
	for i := range list.Items {
		ws := &list.Items[i]
		if takeover.StateOf(ws) == takeover.Unadopted {
			continue
		}
		claims, err := c.Machines.NodeClaims(ctx, client.ObjectKeyFromObject(ws))
		if err != nil {
			return nil, err
		}
		for i := range claims {
			out = append(out, c.of(ws, &claims[i]))
		}
	}
	return out, nil
}

// of returns the cost of one of KAITO's NodeClaims for a Workspace. The claim's labels name the machine type once it
// has launched. Before that, the type is in the Workspace's spec, until the spec is edited. The launch was before the
// takeover, so the machine is charged from the first observation on.
func (c *Costs) of(ws *v1beta1.Workspace, claim *metav1.PartialObjectMetadata) capacity.MachineCost {
	launched := claim.Labels[corev1.LabelInstanceTypeStable]
	out := capacity.MachineCost{
		Owner:   capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID},
		Machine: nodeClaim + " " + claim.Name, UID: claim.UID, InstanceType: launched, HourlyPrice: -1,
		CapacityType: cmp.Or(v1beta1.CapacityType(claim.Labels[labelCapacityType]), v1beta1.CapacityOnDemand),
		Launched:     launched != "", Leaving: !claim.DeletionTimestamp.IsZero(),
	}
	if launched == "" && takeover.StateOf(ws) == takeover.Frozen {
		out.InstanceType = ws.Resource.InstanceType
	}
	if out.InstanceType != "" {
		out.HourlyPrice = c.Price(out.InstanceType, out.CapacityType)
	}
	return out
}

// labelCapacityType is Karpenter's label for how a machine is paid for.
const labelCapacityType = "karpenter.sh/capacity-type"
