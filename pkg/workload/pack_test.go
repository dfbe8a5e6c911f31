// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/modelberth/modelberth/pkg/workload"
)

func packable(annotations map[string]string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", Annotations: map[string]string{"hash": "h"}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), ServiceName: "chat-headless",
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"uid": "u"},
					Containers: []corev1.Container{{Name: "chat", Args: []string{"--model", "m"}, Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")},
					}}},
				},
			},
		},
		Status: appsv1.StatefulSetStatus{Replicas: 2},
	}
}

func TestPackedTemplates(t *testing.T) {
	for _, test := range []struct {
		reason      string
		annotations map[string]string
	}{
		{"a template comes back whole", nil},
		{"its annotations come back", map[string]string{"group": "3"}},
		{"a user's annotation of that name reaches no decoder", map[string]string{"modelberth.dev/packed-template": "\xff\xff\xff\xff\x0f"}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			packed := packable(test.annotations)
			if err := workload.Unpack(packed); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(packable(test.annotations), packed); diff != "" {
				t.Errorf("unpacking changed what was not packed (-want +got):\n%s", diff)
			}
			for range 2 { // an informer may transform an object again
				if _, err := workload.Pack(packed); err != nil {
					t.Fatal(err)
				}
			}
			if len(packed.Spec.Template.Spec.Containers) > 0 || *packed.Spec.Replicas != 2 || packed.Status.Replicas != 2 {
				t.Errorf("the packed object is %+v", packed)
			}
			shared := *packed
			if err := workload.Unpack(&shared); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(packable(test.annotations), &shared); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(packed.Spec.Template.Spec.Containers) > 0 {
				t.Error("unpacking a copy changed the cached object")
			}
		})
	}
	missed := toolscache.DeletedFinalStateUnknown{Key: "k"}
	if got, err := workload.Pack(missed); err != nil || got != any(missed) {
		t.Errorf("a missed end became %v, %v", got, err)
	}
	broken := packable(nil)
	broken.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"modelberth.dev/packed-template": "x"}}}
	if err := workload.Unpack(broken); err == nil {
		t.Error("broken bytes were decoded")
	}
}
