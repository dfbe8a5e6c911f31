// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/nodepool"
	"github.com/modelberth/modelberth/pkg/capacity/pods"
	"github.com/modelberth/modelberth/pkg/controllers/autoscaler"
	"github.com/modelberth/modelberth/pkg/controllers/gateway"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/watched"
	"github.com/modelberth/modelberth/pkg/workload"
)

// cacheOptions returns options that keep foreign objects out of memory. They must not name a kind that the API server
// does not serve.
func cacheOptions(o options.Controller, chosen backEnd, served kinds) cache.Options {
	namespaces := watched.Namespaces(o.Watch.Namespaces)
	machines := namespaces.Select(has(v1beta1.LabelWorkspaceUID), v1beta1.LabelMachineWorkspaceNamespace)
	managed := labels.SelectorFromSet(labels.Set{v1beta1.LabelManagedBy: v1beta1.ManagedBy})
	byObject := map[client.Object]cache.ByObject{
		&appsv1.StatefulSet{}:           {Transform: keepSet},
		&appsv1.ControllerRevision{}:    {Label: pinned(managed), Transform: render.Pack},
		&corev1.Service{}:               {Transform: apply.Keep},
		&networkingv1.NetworkPolicy{}:   {Transform: apply.Keep},
		&policyv1.PodDisruptionBudget{}: {Transform: apply.Keep},
		&corev1.Pod{}:                   {Label: has(v1beta1.LabelWorkspace), Transform: workload.Keep},
		&corev1.Node{}:                  {Transform: existing.Keep},
		&corev1.ConfigMap{}:             {Transform: namesOnly},
		&corev1.Namespace{}:             {Label: namespaces.Named(), Transform: rulesOnly},

		&autoscalingv2.HorizontalPodAutoscaler{}: {Transform: autoscaler.Keep},
	}
	endpoints := cache.ByObject{Label: managed, Transform: workload.KeepEndpoints}
	if hasGateways(served, o.Gateway) {
		endpoints = slicesWith(namespaces, o.Gateway.Routers.Namespace, managed)
		for _, object := range gateway.Objects(o.Gateway.Gateway.Name != "") {
			byObject[object] = cache.ByObject{Label: managed}
		}
	}
	byObject[&discoveryv1.EndpointSlice{}] = endpoints
	if served.has(nodeClaimKind()) {
		byObject[nodeclaim.Object()] = cache.ByObject{Label: machines, Transform: nodeclaim.Keep}
	}
	if served.has(nodePoolKind()) {
		byObject[nodepool.Object()] = cache.ByObject{Label: machines}
	}
	switch {
	case chosen == options.BackendPods:
		byObject[&corev1.Event{}] = eventsIn(namespaces, pods.EventCache(), metav1.NamespaceSystem)
	case chosen == options.BackendNodePool && !o.StaticNodePools:
		byObject[&corev1.Event{}] = eventsIn(namespaces, nodepool.EventCache(), metav1.NamespaceDefault)
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(), DefaultNamespaces: namespaces.Cached(), ByObject: byObject,
	}
}

// slicesWith returns a cache of the EndpointSlices with our label and, in their own namespace, of those of the routers.
// The routers' Service is an object of the chart, so that namespace has no common label. The slices of endpoint pickers
// stay whole.
func slicesWith(namespaces watched.Namespaces, routers string, managed labels.Selector) cache.ByObject {
	out := cache.ByObject{Label: managed, Namespaces: namespaces.Cached(), Transform: func(object any) (any, error) {
		if accessor, err := meta.Accessor(object); err == nil && accessor.GetLabels()[gateway.LabelEndpointPicker] != "" {
			return cache.TransformStripManagedFields()(object)
		}
		return workload.KeepEndpoints(object)
	}}
	if namespaces.All() {
		out.Namespaces = map[string]cache.Config{cache.AllNamespaces: {}}
	}
	out.Namespaces[routers] = cache.Config{LabelSelector: labels.Everything()}
	return out
}

// eventsIn makes a cache keep events in the watched namespaces, and in the namespace of events about cluster-scoped
// objects.
func eventsIn(namespaces watched.Namespaces, kept cache.ByObject, published string) cache.ByObject {
	kept.Namespaces = namespaces.Cached(published)
	return kept
}

// namesOnly keeps only the metadata of users' ConfigMaps for a watch. It drops annotations, because these may contain
// whole copies of the ConfigMap.
func namesOnly(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
		accessor.SetAnnotations(nil)
		accessor.SetLabels(nil)
	}
	return object, nil
}

// rulesOnly keeps only the fields of namespaces that affect their Workspaces.
func rulesOnly(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		kept := maps.Clone(accessor.GetLabels())
		maps.DeleteFunc(kept, func(key, _ string) bool { return !strings.HasPrefix(key, "pod-security.kubernetes.io/") })
		accessor.SetLabels(kept)
		accessor.SetManagedFields(nil)
		var rules map[string]string
		for _, key := range []string{
			v1beta1.AnnotationSpendingCeiling, v1beta1.AnnotationMonthlyBudget, v1beta1.AnnotationBudgetAction,
		} {
			if value, isSet := accessor.GetAnnotations()[key]; isSet {
				if rules == nil {
					rules = map[string]string{}
				}
				rules[key] = value
			}
		}
		accessor.SetAnnotations(rules)
	}
	return object, nil
}

// pinned selects the revisions of Workspaces. Kubernetes keeps a revision of each StatefulSet with the labels of its pods,
// so managed objects include those.
func pinned(managed labels.Selector) labels.Selector {
	requirements, _ := has(v1beta1.LabelRevisionOwner).Requirements()
	return managed.Add(requirements...)
}

// has selects objects with a label, whatever its value.
func has(key string) labels.Selector {
	requirement, err := labels.NewRequirement(key, selection.Exists, nil)
	if err != nil {
		return labels.Nothing()
	}
	return labels.NewSelector().Add(*requirement)
}
