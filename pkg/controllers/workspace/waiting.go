// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"cmp"
	"context"
	"errors"
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

// queue is that of the controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// waiting are the Workspaces that wait for what another one may free: money, or an offer that was
// refused. They are woken when that changes, and none of them polls.
type waiting struct {
	mu    sync.Mutex
	keys  map[types.NamespacedName]interest
	queue queue
}

// interest is what a Workspace waits for.
type interest struct {
	// isUndecided says that it is still looking: anything may matter.
	isUndecided bool
	// money says that it can go on once machines of others are gone.
	money bool
	// offers are those that it leaves alone, and would ask for.
	offers []refusal.Offering
	who    refusal.Asker
}

// start is the source of a controller: it keeps the queue.
func (w *waiting) start(_ context.Context, queue queue) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

// add notes that a Workspace is about to look whether it has to wait.
func (w *waiting) add(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key] = interest{isUndecided: true}
}

// narrow notes what a Workspace waits for. One that was woken meanwhile looks again first.
func (w *waiting) narrow(key types.NamespacedName, to interest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, isWaiting := w.keys[key]; isWaiting {
		w.keys[key] = to
	}
}

func (w *waiting) remove(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, key)
}

// LookAgain has one Workspace looked at again, whatever it waits for.
func (r *Reconciler) LookAgain(key types.NamespacedName) {
	r.waiting.mu.Lock()
	defer r.waiting.mu.Unlock()
	if r.waiting.queue != nil {
		r.waiting.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// wakeForMoney has those look again that wait for money.
func (w *waiting) wakeForMoney() {
	w.wake(func(known interest) bool { return known.money })
}

// wakeFor has those look again that wait for an offer within one of some scopes, if it is open for them now.
func (w *waiting) wakeFor(opened []refusal.Scope, isOpen func(refusal.Asker, []refusal.Offering) bool) {
	if len(opened) == 0 {
		return
	}
	isWithin := func(offer refusal.Offering) bool {
		return slices.ContainsFunc(opened, func(scope refusal.Scope) bool { return scope.Covers(offer) })
	}
	w.wake(func(known interest) bool {
		var within []refusal.Offering
		for _, offer := range known.offers {
			if isWithin(offer) {
				within = append(within, offer)
			}
		}
		return len(within) > 0 && isOpen(known.who, within)
	})
}

// wake has those look again that are still looking, or that wait for this. Those that have to wait on say so anew.
func (w *waiting) wake(isMeant func(interest) bool) {
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

// awaited is what a Workspace waits for that may not ask for machines now, and left some offers alone.
func awaited(ws *v1beta1.Workspace, leftAlone []refusal.Offering, err error) interest {
	wait, isWaiting := errors.AsType[*progress.WaitingError](err)
	out := interest{money: isWaiting && wait.Reason == v1beta1.ReasonSpendingCeiling, who: asker(ws)}
	asked := request.Constraints(ws)
	for _, offer := range leftAlone {
		if mayAsk(asked, offer) {
			out.offers = append(out.offers, offer)
		}
	}
	return out
}

// mayAsk says whether a Workspace with these constraints could ask for an offer.
func mayAsk(asked planner.Constraints, offer refusal.Offering) bool {
	types := asked.CapacityTypes
	if len(types) == 0 {
		types = []v1beta1.CapacityType{v1beta1.CapacityOnDemand, v1beta1.CapacityReserved}
	}
	isNamed := func(name string) bool { return strings.EqualFold(name, offer.InstanceType) }
	return slices.Contains(types, offer.CapacityType) &&
		(len(asked.InstanceTypes) == 0 || slices.ContainsFunc(asked.InstanceTypes, isNamed))
}

// machineHandler brings machines to the Workspaces that they belong to. Deleting what is no machine, such as an Event
// that expires, is no news.
type machineHandler struct {
	handler.EventHandler
	// frees says whether a deletion ends what a machine costs; nil where the objects are no machines.
	frees   func(ctx context.Context, deleted client.Object) bool
	waiting *waiting
}

// Delete implements handler.EventHandler.
func (h machineHandler) Delete(ctx context.Context, e ctrlevent.DeleteEvent, queue queue) {
	if h.frees == nil {
		return
	}
	h.EventHandler.Delete(ctx, e, queue)
	if h.frees(ctx, e.Object) {
		h.waiting.wakeForMoney()
	}
}
