// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/script"
)

// zonesOf maps the names of a set's ready replicas to the zones of their nodes.
func (w *world) zonesOf(t *testing.T, set *v1beta1.InferenceSet) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, ws := range w.children(t, set) {
		node := &corev1.Node{}
		if !ws.DeletionTimestamp.IsZero() || len(ws.Status.WorkerNodes) == 0 {
			continue
		}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: ws.Status.WorkerNodes[0]}, node); err != nil {
			t.Fatal(err)
		}
		out[ws.Name] = node.Labels[corev1.LabelTopologyZone]
	}
	return out
}

// untilSpread waits until so many ready replicas are in each zone.
func (w *world) untilSpread(t *testing.T, set *v1beta1.InferenceSet, want map[string]int) {
	t.Helper()
	ready := 0
	for _, n := range want {
		ready += n
	}
	eventually(t, fmt.Sprint("replicas in ", want), func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return false, err.Error()
		}
		got := map[string]int{}
		for _, zone := range w.zonesOf(t, set) {
			got[zone]++
		}
		return cmp.Equal(want, got) && int(set.Status.ReadyReplicas) == ready, fmt.Sprint(got, " ", setSaying(set))
	})
}

// deleteIn deletes a replica in a zone.
func (w *world) deleteIn(t *testing.T, set *v1beta1.InferenceSet, zone string) {
	t.Helper()
	for name, in := range w.zonesOf(t, set) {
		if in != zone {
			continue
		}
		ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: name}}
		if err := w.client.Delete(t.Context(), ws); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no replica in %s", zone)
}

// TestInferenceSetSpreadsOverZones: a set spreads, a restart writes nothing, and a zone without machines stops neither the
// set nor, if it is strict, the replicas in the other zones.
func TestInferenceSetSpreadsOverZones(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	set := setForm(w.namespace(t), "chat", 3)
	set.Spec.ZoneSpread = &v1beta1.ZoneSpreadSpec{}
	set.Spec.Template.Resource.InstanceType = cheap
	set.Spec.Template.Resource.Placement = &v1beta1.PlacementSpec{Zones: []string{"eastus-1", "eastus-2", "eastus-3"}}
	w.karpenter.Play(set.Namespace, script.Script{Cloud: script.Azure})
	w.createSet(t, set)
	w.untilScaled(t, set, 3)
	w.untilSpread(t, set, map[string]int{"eastus-1": 1, "eastus-2": 1, "eastus-3": 1})
	w.untilSet(t, set, v1beta1.ConditionZoneSpread, metav1.ConditionTrue, v1beta1.ReasonZonesEven)
	w.checkSettled(t, life, set)

	before := w.zonesOf(t, set)
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) {
		spec.Template.Inference.Engine = &v1beta1.EngineSpec{Env: []v1beta1.EngineEnv{{Name: "EDIT", Value: "1"}}}
	})
	w.untilScaled(t, set, 3)
	if diff := cmp.Diff(before, w.zonesOf(t, set)); diff != "" {
		t.Errorf("an edit in place moves replicas (-before +after):\n%s", diff)
	}

	w.karpenter.Play(set.Namespace, script.Script{Cloud: script.Azure, Rules: []script.Rule{{Zone: "eastus-1", Outcome: script.NoCapacity}}})
	w.deleteIn(t, set, "eastus-1")
	w.untilSpread(t, set, map[string]int{"eastus-2": 2, "eastus-3": 1})
	w.untilSet(t, set, v1beta1.ConditionZoneSpread, metav1.ConditionFalse, v1beta1.ReasonZonesUneven)

	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) {
		spec.ZoneSpread.WhenUnsatisfiable = v1beta1.DoNotSchedule
		spec.Replicas = new(int32(4))
	})
	w.untilSet(t, set, v1beta1.ConditionZoneSpread, metav1.ConditionFalse, v1beta1.ReasonZoneRefused)
	during(t, "the others serve, and one waits", time.Second, func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return false, err.Error()
		}
		said := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionZoneSpread)
		return set.Status.ReadyReplicas == 3 && strings.Contains(said.Message, "The Workspace waits in eastus-1"), said.Message
	})
	serving := w.zonesOf(t, set)
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) { spec.ZoneSpread.WhenUnsatisfiable = v1beta1.ScheduleAnyway })
	w.untilSpread(t, set, map[string]int{"eastus-2": 2, "eastus-3": 2})
	for name, zone := range w.zonesOf(t, set) {
		if was := serving[name]; was != "" && was != zone {
			t.Errorf("%s moved from %s to %s", name, was, zone)
		}
	}
	w.scale(t, set, 2)
	w.untilSpread(t, set, map[string]int{"eastus-2": 1, "eastus-3": 1})
	w.removeSet(t, set)
}
