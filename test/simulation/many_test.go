// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// machines of one Workspace; the API allows 1,000.
var machines = flag.Int("machines", 100, "machines of one Workspace in TestManyMachinesAreKept")

// TestManyMachinesAreKept holds many machines through an edit of its pods, a lost
// machine and a restart of the controller.
func TestManyMachinesAreKept(t *testing.T) {
	f, err := newFacts()
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{*machines} {
		t.Run(fmt.Sprintf("%d machines", count), func(t *testing.T) {
			w := newWorld(t.Context(), f, 1, nil)
			defer w.end()
			w.faults = faults{}
			clear(w.karpenter.cloud.rules)
			clear(w.karpenter.cloud.quotas)
			ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "many"}}
			ws.Inference, ws.Resource.Count = template(), &count
			ws.Resource.Placement = &v1beta1.PlacementSpec{
				NodeSource: v1beta1.NodeSourceProvisioned, InstanceTypes: []string{machineTypes()[0].Name},
			}
			if err := w.server.create(ws); err != nil {
				t.Fatal(err)
			}
			w.begin()
			first := w.untilMany(t, count, nil)

			w.people.change(known(w, ws), func(next *v1beta1.Workspace) { next.Inference.Template.Spec.Containers[0].Image = "other" })
			if edited := w.untilMany(t, count, nil); !maps.Equal(edited, first) {
				t.Error("an edit of the pods replaced machines")
			}
			lost := slices.Sorted(maps.Keys(first))[count-1]
			claim, _ := w.server.objects[claims][nameOf(lost)].(*karpv1.NodeClaim)
			w.tell("%s is lost", lost)
			w.server.remove(w.server.objects[nodes][nameOf(nodeName(claim))])
			w.server.remove(claim)
			w.kill()
			replaced := w.untilMany(t, count, map[string]types.UID{lost: first[lost]})
			delete(replaced, lost)
			delete(first, lost)
			if !maps.Equal(replaced, first) {
				t.Error("the loss of one machine replaced others")
			}
			if w.broken != nil {
				t.Error(w.broken)
			}
		})
	}
}

// known is a Workspace as it is now.
func known(w *world, ws *v1beta1.Workspace) *v1beta1.Workspace {
	current, _ := w.server.objects[workspaces][types.NamespacedName{Namespace: ws.Namespace, Name: ws.Name}].(*v1beta1.Workspace)
	return current
}

// untilMany waits until as many machines work and the Workspace is ready, and returns the UIDs of their claims by name.
// Deleted ones do not count.
func (w *world) untilMany(t *testing.T, count int, gone map[string]types.UID) map[string]types.UID {
	t.Helper()
	for range 12 {
		w.until(w.now().Add(5 * time.Minute))
		out := map[string]types.UID{}
		for _, claim := range all[karpv1.NodeClaim](w.server) {
			if w.isWorking(claim) && gone[claim.Name] != claim.UID {
				out[claim.Name] = claim.UID
			}
		}
		ws := all[v1beta1.Workspace](w.server)[0]
		isReady := meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionReady) && ws.Status.ObservedGeneration == ws.Generation
		if len(out) == count && isReady || w.broken != nil {
			return out
		}
	}
	t.Fatalf("%d machines do not come to work", count)
	return nil
}
