// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestReadersSeeWholeStatefulSets checks that reads through the cached client return the templates that the cache packs.
func TestReadersSeeWholeStatefulSets(t *testing.T) {
	want := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "chat", Args: []string{"--model", "m"}}}}}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "chat", Labels: map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy},
		},
		Spec: appsv1.StatefulSetSpec{Template: want},
	}
	kept, err := keepSet(set.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	packed, ok := kept.(*appsv1.StatefulSet)
	if !ok || len(packed.Spec.Template.Spec.Containers) > 0 {
		t.Fatalf("the cache keeps %+v", kept)
	}
	reader := unpacking{cacheOfOne{set: packed}}
	got, list := &appsv1.StatefulSet{}, &appsv1.StatefulSetList{}
	if err := reader.Get(t.Context(), client.ObjectKeyFromObject(set), got); err != nil {
		t.Fatal(err)
	}
	if err := reader.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.PodTemplateSpec{want, want}, []corev1.PodTemplateSpec{got.Spec.Template, list.Items[0].Spec.Template}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(1, len(packed.Spec.Template.Annotations)); diff != "" {
		t.Errorf("a read changed the cached object (-want +got):\n%s", diff)
	}
}

// cacheOfOne is a cache with one StatefulSet. Its lists share the object, as lists without copies do.
type cacheOfOne struct {
	client.Client
	set *appsv1.StatefulSet
}

func (c cacheOfOne) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	into, ok := object.(*appsv1.StatefulSet)
	if !ok {
		return fmt.Errorf("%T is no StatefulSet", object)
	}
	c.set.DeepCopyInto(into)
	return nil
}

func (c cacheOfOne) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	into, ok := list.(*appsv1.StatefulSetList)
	if !ok {
		return fmt.Errorf("%T is no list of StatefulSets", list)
	}
	into.Items = []appsv1.StatefulSet{*c.set}
	return nil
}
