// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ScaledObjectKind returns the kind of KEDA's ScaledObjects. The cluster may lack it.
func ScaledObjectKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}
}

// ScaledObject returns an empty object of KEDA's kind.
func ScaledObject() *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(ScaledObjectKind())
	return out
}

// Keep drops the unused parts of a HorizontalPodAutoscaler before it is cached.
func Keep(object any) (any, error) {
	hpa, ok := object.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok {
		return object, nil
	}
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{
			Name: hpa.Name, Namespace: hpa.Namespace, UID: hpa.UID, ResourceVersion: hpa.ResourceVersion,
		},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: hpa.Spec.ScaleTargetRef},
	}, nil
}

// rivalOf names another autoscaler that targets a set; empty if there is none. It checks ScaledObjects, too: KEDA
// creates their HorizontalPodAutoscaler with a delay, and none for a paused ScaledObject.
func (r *Reconciler) rivalOf(ctx context.Context, set *v1beta1.InferenceSet) (string, error) {
	if r.HasKEDA {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(ScaledObjectKind())
		if err := r.Others.List(ctx, list, client.InNamespace(set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("listing ScaledObjects: %w", err)
		}
		named := func(o *unstructured.Unstructured) (string, string) { return targetOf(o), o.GetName() }
		if name := first(list.Items, set.Name, named); name != "" {
			return "ScaledObject " + name, nil
		}
	}
	list := &autoscalingv2.HorizontalPodAutoscalerList{}
	if err := r.Others.List(ctx, list, client.InNamespace(set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing HorizontalPodAutoscalers: %w", err)
	}
	named := func(o *autoscalingv2.HorizontalPodAutoscaler) (string, string) { return targetOf(o), o.Name }
	if name := first(list.Items, set.Name, named); name != "" {
		return "HorizontalPodAutoscaler " + name, nil
	}
	return "", nil
}

// first returns the smallest name of the objects with a target; empty if there are none.
func first[T any](items []T, target string, read func(*T) (targetOf, name string)) string {
	var names []string
	for i := range items {
		if of, name := read(&items[i]); of == target {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.MinFunc(names, cmp.Compare)
}

// targetOf returns the name of the InferenceSet that another autoscaler targets; empty if it targets another kind.
func targetOf(object client.Object) string {
	var version, kind, name string
	switch object := object.(type) {
	case *autoscalingv2.HorizontalPodAutoscaler:
		target := object.Spec.ScaleTargetRef
		version, kind, name = target.APIVersion, target.Kind, target.Name
	case *unstructured.Unstructured:
		read := func(field string) string {
			value, _, err := unstructured.NestedString(object.Object, "spec", "scaleTargetRef", field)
			if err != nil { // KEDA's schema admits no other type
				return ""
			}
			return value
		}
		version, kind, name = read("apiVersion"), read("kind"), read("name")
	}
	group, _, _ := strings.Cut(version, "/")
	if kind != v1beta1.InferenceSetKind || group != v1beta1.Group {
		return ""
	}
	return name
}
