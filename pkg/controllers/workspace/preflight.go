// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/pkg/planning"
)

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
