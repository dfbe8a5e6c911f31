// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// Prices returns what a machine costs in USD per hour; negative where that is not known.
type Prices func(instanceType string, capacityType v1beta1.CapacityType) float64

// Bills are the machines that pods ask for, as the watches saw them. The price is the catalogue's: a tenant may write
// what stands on the pods.
func (p *Provisioner) Bills(ctx context.Context) ([]capacity.Bill, error) {
	return p.bills(ctx, p.cached, &v1beta1.WorkspaceList{})
}

// LiveBills are those that the API server has.
func (p *Provisioner) LiveBills(ctx context.Context) ([]capacity.Bill, error) {
	return p.bills(ctx, p.live, bareWorkspaces())
}

// bills of Workspaces that are gone have no price. They are there for whoever releases what such a Workspace left.
func (p *Provisioner) bills(ctx context.Context, from client.Reader, workspaces client.ObjectList) ([]capacity.Bill, error) {
	held, err := list(ctx, from, client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy})
	if err != nil {
		return nil, err
	}
	isLive, err := living(ctx, from, workspaces) // after its objects, so that none of them is older than its Workspace
	if err != nil {
		return nil, err
	}
	slots := held.slots(isLive)
	out := make([]capacity.Bill, 0, len(slots))
	for i := range slots {
		s := &slots[i]
		bill := capacity.Bill{
			Owner: s.owner, Machine: s.name(), UID: s.uid(), InstanceType: s.asked.InstanceType, HourlyPrice: unpriced,
			Launched: s.pod != nil && s.pod.Spec.NodeName != "", Leaving: s.isLeaving,
		}
		if isLive(s.owner) {
			bill.HourlyPrice = p.price(s)
		}
		out = append(out, bill)
	}
	return out, nil
}

// unpriced is the price of what counts as nothing.
const unpriced = -1

func (p *Provisioner) price(s *slot) float64 {
	return p.prices(s.asked.InstanceType, s.asked.CapacityType)
}

// bareWorkspaces is a list of Workspaces without what they say.
func bareWorkspaces() client.ObjectList {
	out := &metav1.PartialObjectMetadataList{}
	out.SetGroupVersionKind(v1beta1.GroupVersion().WithKind("WorkspaceList"))
	return out
}

// living returns which Workspaces there are.
func living(ctx context.Context, from client.Reader, workspaces client.ObjectList) (func(capacity.Owner) bool, error) {
	if err := from.List(ctx, workspaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Workspaces: %w", err)
	}
	there := map[capacity.Owner]bool{}
	err := meta.EachListItem(workspaces, func(object runtime.Object) error {
		ws, err := meta.Accessor(object)
		if err != nil {
			return fmt.Errorf("listing Workspaces: %w", err)
		}
		there[capacity.Owner{Namespace: ws.GetNamespace(), Name: ws.GetName(), UID: ws.GetUID()}] = true
		return nil
	})
	return func(owner capacity.Owner) bool { return there[owner] }, err
}

// Frees says whether a deleted pod ends what a machine costs: nothing takes its place. A pod whose StatefulSet still
// asks for it is replaced.
func (p *Provisioner) Frees(ctx context.Context, deleted client.Object) bool {
	pod, isPod := deleted.(*corev1.Pod)
	if !isPod {
		return false
	}
	alone, isAsking := slotOfPod(pod)
	if !isAsking {
		return false
	}
	name, _, _ := ordinalOf(pod)
	set := &appsv1.StatefulSet{}
	err := p.cached.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, set)
	if err != nil {
		return true // it is gone, or it is better to look once too often
	}
	slots := slotsOfSet(set, func(capacity.Owner) bool { return true })
	return !slices.ContainsFunc(slots, func(s slot) bool { return s.uid() == alone.uid() && !s.isLeaving })
}
