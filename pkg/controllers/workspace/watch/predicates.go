// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/modelberth/modelberth/pkg/workload"
)

// endpointsChanged passes EndpointSlices that get a ready pod. A Workspace waits for nothing else from them.
func endpointsChanged() predicate.Predicate {
	ready := func(object client.Object) []types.UID {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		if !ok {
			return nil
		}
		return workload.ReadyEndpoints(*slice)
	}
	return predicate.Funcs{
		CreateFunc: func(e ctrlevent.CreateEvent) bool { return len(ready(e.Object)) > 0 },
		DeleteFunc: func(ctrlevent.DeleteEvent) bool { return false },
		UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
			before := ready(e.ObjectOld)
			return slices.ContainsFunc(ready(e.ObjectNew), func(pod types.UID) bool { return !slices.Contains(before, pod) })
		},
	}
}

// namespaceChanged passes changes of a namespace that affect its Workspaces. It also passes the first event of a
// namespace, because a pass may have read the namespace before its labels changed.
func namespaceChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e ctrlevent.CreateEvent) bool {
			return len(e.Object.GetLabels())+len(e.Object.GetAnnotations()) > 0
		},
		DeleteFunc: func(ctrlevent.DeleteEvent) bool { return false },
		UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
			return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
		},
	}
}

// quotaLoosened passes changes of a ResourceQuota that may admit more: another spec, or less usage.
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
