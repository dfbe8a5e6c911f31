// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/endpoint"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
)

// empty is a provisioner without machines.
type empty struct{ account }

func (empty) Kind(capacity.Owner) string { return "machine" }
func (empty) Observe(context.Context, capacity.Owner, []capacity.Created, string) ([]capacity.Machine, error) {
	return nil, nil
}
func (empty) Release(context.Context, capacity.Owner) ([]string, error)        { return nil, nil }
func (empty) Owners(context.Context, string, string) ([]capacity.Owner, error) { return nil, nil }

// TestEndOfAWorkspaceFreesWhatItAskedFor deletes a Workspace before its first machine exists, when it has the right to
// request an offering again and has reserved the money. No deleted machine will wake the other Workspaces.
func TestEndOfAWorkspaceFreesWhatItAskedFor(t *testing.T) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	ws := workspaceObject()
	ws.DeletionTimestamp, ws.Finalizers = &now, []string{v1beta1.Finalizer}
	kube := fake.NewClientBuilder().WithScheme(known).WithObjects(ws).WithStatusSubresource(ws).Build()
	books, ten := empty{}, ledger.Ceilings{Cluster: 10}
	r := New(Config{
		Client: kube, Live: kube, Provisioner: books, Ledger: ledger.New(books),
		Memory: &cooldown.Memory{}, Endpoints: endpoint.New(nil, testclock.NewFakePassiveClock(now.Time)), Clock: testclock.NewFakePassiveClock(now.Time),
	})
	offer := refusal.Offering{InstanceType: "a", CapacityType: v1beta1.CapacityOnDemand}
	refused := refusal.Attempt{
		Asker: refusal.Asker{Workspace: "former"}, Offering: offer, Started: now.Add(-2 * time.Hour), Ended: now.Add(-2 * time.Hour), Cause: refusal.NoCapacity,
		Scope: refusal.Scope{Breadth: refusal.SKU, Name: "a", Zone: refusal.Any, CapacityType: v1beta1.CapacityOnDemand}, Cooldown: time.Hour,
	}
	r.Memory.Learn(now.Time, refused)
	bill := func(uid types.UID, machine string) []capacity.MachineCost {
		return []capacity.MachineCost{{Owner: capacity.Owner{UID: uid}, Machine: machine, HourlyPrice: 8}}
	}
	if !r.Memory.Ask(now.Time, lessons.Asker(ws), offer) || r.Memory.Ask(now.Time, refusal.Asker{Workspace: "other"}, offer) {
		t.Fatal("it is not the first to ask again")
	}
	if err := r.Ledger.Reserve(t.Context(), now.Time, bill(ws.UID, "mine"), ten); err != nil {
		t.Fatal(err)
	}
	woken := queueOf(t, r)
	r.waiting.Add(types.NamespacedName{Namespace: "team-b", Name: "other"})
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ws)}); err != nil {
		t.Fatal(err)
	}
	if woken.Len() != 1 {
		t.Errorf("%d Workspaces were woken, want the one that waits", woken.Len())
	}
	if !r.Memory.Ask(now.Time, refusal.Asker{Workspace: "other"}, offer) {
		t.Error("the offer is still left to a Workspace that is gone")
	}
	if err := r.Ledger.Reserve(t.Context(), now.Time, bill("other", "theirs"), ten); err != nil {
		t.Errorf("its money is still reserved: %v", err)
	}
}
