// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
)

// Queue is the queue of the controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Waiting holds the Workspaces that wait for money or for a refused offering. Events wake these Workspaces, so none of
// them polls.
type Waiting struct {
	mu    sync.Mutex
	keys  map[types.NamespacedName]Interest
	queue Queue
}

// NewWaiting returns an empty Waiting.
func NewWaiting() *Waiting { return &Waiting{keys: map[types.NamespacedName]Interest{}} }

// Interest describes the change for which a Workspace waits.
type Interest struct {
	// isUndecided means that the check of money and offerings is not over, so any change may matter.
	isUndecided bool
	// Money means that the Workspace can continue once other Workspaces release machines.
	Money bool
	// Offers are offerings in a cooldown; the Workspace would request any of them.
	Offers []refusal.Offering
	Asker  refusal.Asker
}

// Start implements a controller's source: it keeps the queue.
func (w *Waiting) Start(_ context.Context, queue Queue) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

// Add records a Workspace before its pass checks money and offerings.
func (w *Waiting) Add(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key] = Interest{isUndecided: true}
}

// Narrow replaces the undecided interest of a Workspace, unless a change has woken the Workspace meanwhile.
func (w *Waiting) Narrow(key types.NamespacedName, to Interest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, isWaiting := w.keys[key]; isWaiting {
		w.keys[key] = to
	}
}

// Remove ends the wait of a Workspace.
func (w *Waiting) Remove(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, key)
}

// WakeForMoney wakes the Workspaces that wait for money.
func (w *Waiting) WakeForMoney() {
	w.wake(func(known Interest) bool { return known.Money })
}

// WakeFor wakes the Workspaces that wait for an offering within the opened scopes, if isOpen confirms it for them.
func (w *Waiting) WakeFor(opened []refusal.Scope, isOpen func(refusal.Asker, []refusal.Offering) bool) {
	if len(opened) == 0 {
		return
	}
	isWithin := func(offer refusal.Offering) bool {
		return slices.ContainsFunc(opened, func(scope refusal.Scope) bool { return scope.Covers(offer) })
	}
	w.wake(func(known Interest) bool {
		var within []refusal.Offering
		for _, offer := range known.Offers {
			if isWithin(offer) {
				within = append(within, offer)
			}
		}
		return len(within) > 0 && isOpen(known.Asker, within)
	})
}

// wake wakes undecided Workspaces and those with a matching interest. A Workspace that must wait on is added again by
// its next pass.
func (w *Waiting) wake(isMeant func(Interest) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	var woken []types.NamespacedName
	for key, known := range w.keys {
		if known.isUndecided || isMeant(known) {
			woken = append(woken, key)
		}
	}
	slices.SortFunc(woken, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, key := range woken {
		w.queue.Add(reconcile.Request{NamespacedName: key})
		delete(w.keys, key)
	}
}

// InterestOf returns the interest of a Workspace, given the error of its pass and the offerings in a cooldown.
func InterestOf(who refusal.Asker, ws *v1beta1.Workspace, leftAlone []refusal.Offering, err error) Interest {
	out := Interest{Money: progress.LacksMoney(err), Asker: who}
	asked := request.Constraints(ws)
	for _, offer := range leftAlone {
		if mayAsk(asked, offer) {
			out.Offers = append(out.Offers, offer)
		}
	}
	return out
}

// mayAsk reports whether a Workspace with these constraints could request an offering.
func mayAsk(asked planner.Constraints, offer refusal.Offering) bool {
	types := asked.CapacityTypes
	if len(types) == 0 {
		types = []v1beta1.CapacityType{v1beta1.CapacityOnDemand, v1beta1.CapacityReserved}
	}
	isNamed := func(name string) bool { return strings.EqualFold(name, offer.InstanceType) }
	return slices.Contains(types, offer.CapacityType) &&
		(len(asked.InstanceTypes) == 0 || slices.ContainsFunc(asked.InstanceTypes, isNamed))
}

// machineHandler maps machines to their Workspaces. It ignores the deletion of objects that are not machines, such as
// expired Events.
type machineHandler struct {
	handler.EventHandler
	// frees reports whether a deletion ends a machine's cost; nil for objects that are not machines.
	frees   func(ctx context.Context, deleted client.Object) bool
	waiting *Waiting
}

// Delete implements handler.EventHandler.
func (h machineHandler) Delete(ctx context.Context, e ctrlevent.DeleteEvent, queue Queue) {
	if h.frees == nil {
		return
	}
	h.EventHandler.Delete(ctx, e, queue)
	if h.frees(ctx, e.Object) {
		h.waiting.WakeForMoney()
	}
}

// LookAgain requests a pass over one Workspace, even a waiting one.
func (w *Waiting) LookAgain(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.Add(reconcile.Request{NamespacedName: key})
	}
}
