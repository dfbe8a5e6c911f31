// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Keep is the transform of an Applier's cache. It keeps our objects whole, and only the identity of others. So an
// Applier detects a taken name without a request, for little memory.
func Keep(object any) (any, error) {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return object, nil
	}
	if accessor.GetLabels()[v1beta1.LabelManagedBy] == v1beta1.ManagedBy {
		accessor.SetManagedFields(nil)
		return object, nil
	}
	switch object := object.(type) {
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{TypeMeta: object.TypeMeta, ObjectMeta: identity(accessor)}, nil
	case *corev1.Service:
		return &corev1.Service{TypeMeta: object.TypeMeta, ObjectMeta: identity(accessor)}, nil
	case *networkingv1.NetworkPolicy:
		return &networkingv1.NetworkPolicy{TypeMeta: object.TypeMeta, ObjectMeta: identity(accessor)}, nil
	case *policyv1.PodDisruptionBudget:
		return &policyv1.PodDisruptionBudget{TypeMeta: object.TypeMeta, ObjectMeta: identity(accessor)}, nil
	default:
		return object, nil
	}
}

// identity is an object's name, owner and deletion state.
func identity(object metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		OwnerReferences: object.GetOwnerReferences(), DeletionTimestamp: object.GetDeletionTimestamp(),
	}
}
