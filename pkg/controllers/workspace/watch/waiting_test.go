// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// TestDeletingWhatIsNoMachineWakesNobody: only a deletion that frees money wakes the Workspaces without money. Events
// expire by the thousand, and pods and nodes come and go.
func TestDeletingWhatIsNoMachineWakesNobody(t *testing.T) {
	frees := func(does bool) func(context.Context, client.Object) bool {
		return func(context.Context, client.Object) bool { return does }
	}
	for _, test := range []struct {
		reason string
		frees  func(context.Context, client.Object) bool
		want   []string
	}{
		{"an Event, or a node", nil, nil},
		{"a pod that is replaced", frees(false), []string{"owner"}},
		{"a machine", frees(true), []string{"owner", "waits"}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			waiting := NewWaiting()
			woken := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			t.Cleanup(woken.ShutDown)
			if err := waiting.Start(t.Context(), woken); err != nil {
				t.Fatal(err)
			}
			waits := types.NamespacedName{Name: "waits"}
			waiting.Add(waits)
			waiting.Narrow(waits, Interest{Money: true})
			h := machineHandler{handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "owner"}}}
			}), test.frees, waiting}
			h.Delete(t.Context(), ctrlevent.DeleteEvent{Object: &corev1.Event{}}, woken)
			if diff := cmp.Diff(test.want, drained(woken)); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAwaitedOffersAreThoseThatItMayAskFor: a Workspace does not wait for a machine type outside its spec.
func TestAwaitedOffersAreThoseThatItMayAskFor(t *testing.T) {
	ws, who := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{}}, refusal.Asker{Workspace: "uid-1"}
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{"A"}, CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacitySpot}}
	offer := func(name string, capacityType v1beta1.CapacityType) refusal.Offering {
		return refusal.Offering{InstanceType: name, CapacityType: capacityType}
	}
	left := []refusal.Offering{offer("a", v1beta1.CapacitySpot), offer("a", v1beta1.CapacityOnDemand), offer("b", v1beta1.CapacitySpot)}
	want := Interest{Asker: who, Money: true, Offers: left[:1]}
	for _, reason := range []string{v1beta1.ReasonSpendingCeiling, v1beta1.ReasonMonthlyBudget} {
		got := InterestOf(who, ws, left, &progress.WaitingError{Reason: reason})
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Interest{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// drained returns the sorted names of the Workspaces in a queue.
func drained(woken Queue) []string {
	var out []string
	for woken.Len() > 0 {
		request, _ := woken.Get()
		out = append(out, request.Name)
		woken.Done(request)
	}
	slices.Sort(out)
	return out
}
