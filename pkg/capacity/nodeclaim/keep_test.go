// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

func TestCacheDropsResourcesOfMachines(t *testing.T) {
	has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	for _, test := range []struct {
		reason    string
		got, want any
	}{
		{
			"the Node has the resources of the machine; the requests and the state stay",
			&karpv1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
				Spec:       karpv1.NodeClaimSpec{Resources: karpv1.ResourceRequirements{Requests: has}},
				Status:     karpv1.NodeClaimStatus{NodeName: "n", ProviderID: "p", Capacity: has, Allocatable: has},
			},
			&karpv1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"}},
				Spec:       karpv1.NodeClaimSpec{Resources: karpv1.ResourceRequirements{Requests: has}},
				Status:     karpv1.NodeClaimStatus{NodeName: "n", ProviderID: "p"},
			},
		},
		{"an end that was missed", toolscache.DeletedFinalStateUnknown{Key: "k"}, toolscache.DeletedFinalStateUnknown{Key: "k"}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := nodeclaim.Keep(test.got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
