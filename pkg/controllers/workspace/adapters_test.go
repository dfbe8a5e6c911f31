// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

// TestRemovedAdapters: a ready pod keeps a removed adapter in its list until the status lacks it. A pod that waits for the
// adapter loses it at once. The controller overwrites no list that is newer than the cached one.
func TestRemovedAdapters(t *testing.T) {
	old := adapters.Adapter{Name: "old", Repository: "org/old"}
	before := adapters.List{Adapters: []adapters.Adapter{old}}
	for _, tc := range []struct {
		reason  string
		isReady corev1.ConditionStatus
		change  func(cached *corev1.Pod)
		want    adapters.List
	}{
		{"a ready pod", corev1.ConditionTrue, nil, before},
		{"a pod that waits for it", corev1.ConditionFalse, nil, adapters.List{Adapters: []adapters.Adapter{}, Gone: []adapters.Adapter{old}}},
		{"a late cache", corev1.ConditionFalse, func(cached *corev1.Pod) { cached.ResourceVersion = "1" }, before},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			pod := podReady()
			pod.Namespace, pod.Annotations = "team-a", map[string]string{v1beta1.AnnotationAdapters: before.Encode()}
			pod.Status.Conditions[0].Status = tc.isReady
			kube := fake.NewClientBuilder().WithObjects(&pod).Build()
			cached := &corev1.Pod{}
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(&pod), cached); err != nil {
				t.Fatal(err)
			}
			if tc.change != nil {
				tc.change(cached)
			}
			s := scope.New(workspaceObject())
			s.Revision = accepted(1)
			s.Before.Endpoint = &v1beta1.Endpoint{Models: []string{"some-model", "org/Some-Model", "old"}}
			if err := (&adapterLists{Client: kube}).list(t.Context(), s, cached, []adapters.Adapter{}); err != nil {
				t.Fatal(err)
			}
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(&pod), cached); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want.Encode(), cached.Annotations[v1beta1.AnnotationAdapters]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
