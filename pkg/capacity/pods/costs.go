// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// Prices returns the price of a machine in USD per hour; negative if it is unknown.
type Prices func(instanceType string, capacityType v1beta1.CapacityType) float64

// MachineCosts returns the costs of the machines that pods request, from the cache. The price is from the catalogue,
// because a tenant can change the pods' annotations.
func (p *Provisioner) MachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return p.costs(ctx, p.cached, &v1beta1.WorkspaceList{})
}

// LiveMachineCosts returns the same, from the API server.
func (p *Provisioner) LiveMachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return p.costs(ctx, p.live, bareWorkspaces())
}

// costs returns the costs of machines. Those of deleted Workspaces have no price: they are listed only so that the
// remains of such a Workspace are released.
func (p *Provisioner) costs(ctx context.Context, from client.Reader, workspaces client.ObjectList) ([]capacity.MachineCost, error) {
	held, err := list(ctx, from, client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy})
	if err != nil {
		return nil, err
	}
	isLive, err := living(ctx, from, workspaces) // read after the objects, so that the list has the Workspace of each
	if err != nil {
		return nil, err
	}
	slots := held.slots(isLive)
	out := make([]capacity.MachineCost, 0, len(slots))
	for i := range slots {
		s := &slots[i]
		bill := capacity.MachineCost{
			Owner: s.owner, Machine: s.name(), UID: s.uid(), InstanceType: s.asked.InstanceType, HourlyPrice: unpriced,
			Launched: s.pod != nil && s.pod.Spec.NodeName != "", Leaving: s.isLeaving, CapacityType: s.asked.CapacityType,
		}
		if bill.Launched {
			bill.LaunchedAt = scheduledAt(s.pod)
		}
		if isLive(s.owner) {
			bill.HourlyPrice = p.price(s)
		}
		out = append(out, bill)
	}
	return out, nil
}

// scheduledAt returns when a pod got its node.
func scheduledAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// unpriced marks a machine whose price is unknown. The machine counts as free.
const unpriced = -1

func (p *Provisioner) price(s *slot) float64 {
	return p.prices(s.asked.InstanceType, s.asked.CapacityType)
}

// bareWorkspaces returns an empty list for the metadata of Workspaces.
func bareWorkspaces() client.ObjectList {
	out := &metav1.PartialObjectMetadataList{}
	out.SetGroupVersionKind(v1beta1.GroupVersion().WithKind("WorkspaceList"))
	return out
}

// living returns a function that reports whether a Workspace exists.
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

// Frees reports whether a deleted pod ends the cost of a machine, because no pod replaces it. A StatefulSet replaces
// its pod as long as it requests a machine.
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
		return true // the set is gone, or unreadable: one needless look does no harm
	}
	slots := slotsOfSet(set, func(capacity.Owner) bool { return true })
	return !slices.ContainsFunc(slots, func(s slot) bool { return s.uid() == alone.uid() && !s.isLeaving })
}
