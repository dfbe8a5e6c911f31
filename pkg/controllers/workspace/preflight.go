// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/admission"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/workload"
)

// checkPurchase returns an error if a machine of a plan cannot become useful, before money is spent on it.
func (r *Reconciler) checkPurchase(ctx context.Context, s *scope, made *revision) error {
	purchase := r.purchase(s, made)
	// The user's mistake comes before the cluster's state.
	if problem := planning.ZoneProblem(&made.Plan, purchase.NodeClass); problem != "" {
		return progress.Invalid("nothing is bought yet: " + problem)
	}
	purchase.Pods = podDemand(s.ws, made, s.sets(), s.pods)
	return r.preflight.Check(ctx, purchase)
}

// purchase is what a Workspace buys with a plan, without its pods.
func (r *Reconciler) purchase(s *scope, made *revision) preflight.Purchase {
	out := preflight.Purchase{
		Workspace: client.ObjectKeyFromObject(s.ws), UID: s.ws.UID, NamespaceLabels: s.namespace.Labels,
		InstanceType: made.Plan.InstanceType, DiskGiB: made.Plan.DiskGiB, NodeClass: r.classOf(made.NodeClass),
		ToleratesDedication: made.ToleratesDedication(),
	}
	if made.Plan.MachineGPUs > 0 {
		out.GPUResource = made.Plan.GPUResource
	}
	return out
}

// podDemand is what a plan wants to create, and what exists already.
func podDemand(ws *v1beta1.Workspace, made *revision, sets []*appsv1.StatefulSet, pods []corev1.Pod) admission.Demand {
	out := admission.Demand{ExistingSets: len(sets)}
	for _, object := range made.Pods(ws, made.Name, workload.Group{}) {
		if set, ok := object.(*appsv1.StatefulSet); ok {
			out.Sets = append(out.Sets, set)
		}
	}
	for i := range pods {
		if phase := pods[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			out.Pods = append(out.Pods, pods[i])
		}
	}
	return out
}

// localDisk returns the size of the local disks of a machine type, in GiB; 0 where the catalogue does not have it.
func localDisk(known planning.Catalog) func(string) float64 {
	return func(instanceType string) float64 {
		machine, err := known.ResolveSKU(instanceType)
		if err != nil {
			return 0
		}
		return machine.LocalDiskGiB
	}
}

// byRules finds the Workspaces whose pods were refused in the namespace of a ResourceQuota or a LimitRange.
func (r *Reconciler) byRules(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, key := range r.preflight.Refused(object.GetNamespace()) {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// quotaLoosened passes changes of a ResourceQuota that may admit more: another spec, or less in use.
func quotaLoosened() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.ResourceQuota)
		after, okAfter := e.ObjectNew.(*corev1.ResourceQuota)
		if !ok || !okAfter || before.Generation != after.Generation {
			return true
		}
		for name, was := range before.Status.Used {
			if is := after.Status.Used[name]; is.Cmp(was) < 0 {
				return true
			}
		}
		return false
	}}
}
