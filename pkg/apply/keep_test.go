// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

func TestKeep(t *testing.T) {
	now := metav1.Now()
	identity := metav1.ObjectMeta{
		Namespace: "team-a", Name: "chat", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now,
		OwnerReferences: []metav1.OwnerReference{{Name: "of", UID: "o"}},
	}
	of := func(labels map[string]string) metav1.ObjectMeta {
		out := *identity.DeepCopy()
		out.Labels, out.Annotations = labels, map[string]string{"note": "long"}
		out.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		return out
	}
	ours := of(map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy})
	kept := *ours.DeepCopy()
	kept.ManagedFields = nil
	spec := corev1.ServiceSpec{ClusterIP: "10.0.0.1"}
	tests := []struct {
		reason    string
		got, want any
	}{
		{"what is ours is needed", &corev1.Service{ObjectMeta: ours, Spec: spec}, &corev1.Service{ObjectMeta: kept, Spec: spec}},
		{"of others whose it is", &corev1.Service{ObjectMeta: of(nil), Spec: spec}, &corev1.Service{ObjectMeta: identity}},
		{"a StatefulSet", &appsv1.StatefulSet{ObjectMeta: of(nil), Status: appsv1.StatefulSetStatus{Replicas: 1}}, &appsv1.StatefulSet{ObjectMeta: identity}},
		{
			"a NetworkPolicy",
			&networkingv1.NetworkPolicy{ObjectMeta: of(nil), Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}},
			&networkingv1.NetworkPolicy{ObjectMeta: identity},
		},
		{
			"a PodDisruptionBudget", &policyv1.PodDisruptionBudget{ObjectMeta: of(nil), Status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1}},
			&policyv1.PodDisruptionBudget{ObjectMeta: identity},
		},
		{"a kind that is not applied", &corev1.Secret{ObjectMeta: of(nil)}, &corev1.Secret{ObjectMeta: of(nil)}},
		{"an end that was missed", toolscache.DeletedFinalStateUnknown{Key: "k"}, toolscache.DeletedFinalStateUnknown{Key: "k"}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got, err := apply.Keep(test.got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
