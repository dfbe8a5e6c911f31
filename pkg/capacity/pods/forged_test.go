// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const millionDollars = `{"attempt":1,"instanceType":"Standard_NC24ads_A100_v4","capacityType":"on-demand","hourlyPrice":1000000}`

// forgedSet returns a StatefulSet with our labels, after change.
func forgedSet(replicas int32, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	set := setOf(1, 1)
	set.UID, set.Spec.Replicas = "forged", &replicas
	set.Spec.Template.Annotations = map[string]string{v1beta1.AnnotationMachine: millionDollars}
	change(set)
	return set
}

// TestForgedAnnotationIsNotBilled: a tenant writes the controller's annotations.
func TestForgedAnnotationIsNotBilled(t *testing.T) {
	forgedPod := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := podOf(setOf(1, 1), 1, 0, "")
		pod.Annotations = map[string]string{v1beta1.AnnotationMachine: millionDollars}
		change(pod)
		return pod
	}
	tests := []struct {
		reason  string
		objects []client.Object
		want    float64
	}{
		{"a price on a set of ours is the catalogue's", []client.Object{forgedSet(1, func(*appsv1.StatefulSet) {})}, 3.673},
		{"a Workspace that is not there", []client.Object{forgedSet(1, func(set *appsv1.StatefulSet) {
			set.OwnerReferences[0].UID = "uid-0"
		})}, 0},
		{"the UID of a Workspace of another namespace", []client.Object{forgedSet(1, func(set *appsv1.StatefulSet) {
			set.Namespace = "team-b"
		})}, 0},
		{"an owner of another kind", []client.Object{forgedSet(1, func(set *appsv1.StatefulSet) {
			set.OwnerReferences[0].Kind = "ConfigMap"
		})}, 0},
		{"an owner that does not control it", []client.Object{forgedSet(1, func(set *appsv1.StatefulSet) {
			set.OwnerReferences[0].Controller = nil
		})}, 0},
		{"a set of another name beside that of the Workspace", []client.Object{forgedSet(1, func(set *appsv1.StatefulSet) {
			set.Name = "mine"
		})}, 0},
		{"a stranger's pod", []client.Object{forgedPod(func(pod *corev1.Pod) {
			pod.Namespace, pod.OwnerReferences = "team-b", nil
		})}, 0},
		{"a pod that no StatefulSet of the Workspace names so", []client.Object{forgedPod(func(pod *corev1.Pod) {
			pod.Name, pod.OwnerReferences = "mine-0", nil
		})}, 0},
		{"a pod that only claims to be of the set", []client.Object{setOf(1, 1), forgedPod(func(pod *corev1.Pod) {
			pod.Namespace = "team-b"
		})}, 3.673},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p, _ := newProvisioner(t, test.objects...)
			costs, err := p.LiveMachineCosts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, bill := range costs {
				sum += max(bill.HourlyPrice, 0)
			}
			if sum != test.want {
				t.Errorf("%v USD/h are booked, want %v: %+v", sum, test.want, costs)
			}
		})
	}
}

// TestForgedReplicasAreCapped: one StatefulSet requests four million machines.
func TestForgedReplicasAreCapped(t *testing.T) {
	const millions = 4_000_000
	tests := []struct {
		reason string
		change func(*appsv1.StatefulSet)
		want   int
	}{
		{"of a Workspace that is there", func(*appsv1.StatefulSet) {}, mostMachines},
		{"with ordinals beyond those of any Workspace", func(set *appsv1.StatefulSet) {
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: millions}
		}, 0},
		{"of a Workspace that is not there", func(set *appsv1.StatefulSet) { set.OwnerReferences[0].UID = "uid-0" }, 1},
		{"of no Workspace", func(set *appsv1.StatefulSet) { set.OwnerReferences = nil }, 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			p, _ := newProvisioner(t, forgedSet(millions, test.change))
			costs, err := p.MachineCosts(t.Context())
			if err != nil || len(costs) != test.want {
				t.Errorf("%d costs, %v; want %d", len(costs), err, test.want)
			}
			if _, err := p.Holders(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// BenchmarkHolders measures the start of a leader with many forged sets.
func BenchmarkHolders(b *testing.B) {
	sets := make([]appsv1.StatefulSet, 1000)
	for i := range sets {
		sets[i] = *forgedSet(4_000_000, func(set *appsv1.StatefulSet) {
			set.Namespace, set.UID = fmt.Sprintf("team-%d", i), types.UID(fmt.Sprintf("forged-%d", i))
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		ownersOf(slotsIn(sets, nil, nobody))
	}
}

// TestHoldersAreLive: an owner that only a forged StatefulSet names is no holder.
func TestHoldersAreLive(t *testing.T) {
	elsewhere := forgedSet(1, func(set *appsv1.StatefulSet) { set.Namespace = "team-b" })
	gone := forgedSet(1, func(set *appsv1.StatefulSet) {
		set.Name, set.OwnerReferences[0].Name, set.OwnerReferences[0].UID = "other", "other", "uid-7"
	})
	plain := setOf(1, 1)
	plain.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "chat", UID: "node", Controller: new(true)}}
	plain.Namespace = "team-c"
	p, _ := newProvisioner(t, elsewhere, gone, plain)
	got, err := p.Holders(t.Context())
	if diff := cmp.Diff(0, len(got)); err != nil || diff != "" {
		t.Errorf("holders %v, error %v", got, err)
	}
}
