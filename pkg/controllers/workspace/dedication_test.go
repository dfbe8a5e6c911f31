// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/progress"
)

// tolerant is a revision whose pods tolerate the taint of their Workspace; earlier versions made others.
func tolerant() *revision {
	made := accepted(1)
	made.Template.Spec.Tolerations = []corev1.Toleration{
		{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue}, {Key: v1beta1.TaintKeyWorkspace, Value: "uid-1"},
	}
	return made
}

// TestPurchase: what the checks before a purchase go by.
func TestPurchase(t *testing.T) {
	ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "uid-1"}}
	class := v1beta1.NodeClassReference{Group: "some.dev", Kind: "SomeNodeClass", Name: "gpu"}
	for _, test := range []struct {
		reason    string
		change    func(*revision)
		resource  string
		tolerates bool
	}{
		{"a machine with GPUs", func(*revision) {}, "nvidia.com/gpu", true},
		{"a machine without", func(made *revision) { made.Plan.MachineGPUs = 0 }, "", true},
		{"pods of an earlier version", func(made *revision) { made.Template.Spec.Tolerations = nil }, "nvidia.com/gpu", false},
		{"workers of an earlier version", func(made *revision) { made.Worker = &corev1.PodTemplateSpec{} }, "nvidia.com/gpu", false},
	} {
		r := New(Config{NodeClasses: []v1beta1.NodeClassReference{class}, Catalog: noCatalog{}})
		made := tolerant()
		test.change(made)
		want := preflight.Purchase{
			Workspace: types.NamespacedName{Namespace: "team-a", Name: "chat"}, UID: "uid-1", InstanceType: made.Plan.InstanceType,
			GPUResource: test.resource, NodeClass: class, ToleratesDedication: test.tolerates,
		}
		got := r.purchase(newScope(ws), made)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.reason, diff)
		}
	}
}

// TestZonesComeFirst: a mistake in the spec is reported whatever state the cluster is in.
func TestZonesComeFirst(t *testing.T) {
	r := New(Config{
		Catalog: noCatalog{}, NodeClasses: []v1beta1.NodeClassReference{{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "default"}},
	})
	made := accepted(1)
	made.Plan.Zones = []string{"eastus-1"}
	err := r.checkPurchase(t.Context(), newScope(&v1beta1.Workspace{}), made)
	stalled, isStalled := errors.AsType[*progress.StalledError](err)
	if !isStalled || stalled.Reason != v1beta1.ReasonSpecInvalid || !strings.Contains(stalled.Message, "leave zones out") {
		t.Errorf("%v; want the zones that cannot be chosen", err)
	}
}

// TestTaintedMachineFitsNoEarlierPods: a plan whose pods could not run there does not take over a machine, for example after
// an edit is taken back.
func TestTaintedMachineFitsNoEarlierPods(t *testing.T) {
	plain := capacity.Machine{InstanceType: "Standard_NC24ads_A100_v4", CapacityType: v1beta1.CapacityOnDemand}
	tainted := plain
	tainted.Dedicated = true
	earlier, current := accepted(1), tolerant()
	for _, test := range []struct {
		reason  string
		made    *revision
		machine capacity.Machine
		want    bool
	}{
		{"earlier pods, a machine without", earlier, plain, true},
		{"earlier pods, a machine with the taint", earlier, tainted, false},
		{"pods that tolerate it, a machine that was bought before", current, plain, true},
		{"pods that tolerate it, a machine with the taint", current, tainted, true},
	} {
		if got := fitsRevision(&test.machine, test.made); got != test.want {
			t.Errorf("%s: fits is %t, want %t", test.reason, got, test.want)
		}
	}
}
