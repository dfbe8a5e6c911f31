// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is that of the controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// waiting are the Workspaces that wait for what another one may free: money, or an offer that was
// refused. They are woken when something changes, and none of them polls.
type waiting struct {
	mu    sync.Mutex
	keys  map[types.NamespacedName]struct{}
	queue queue
}

// start is the source of a controller: it keeps the queue.
func (w *waiting) start(_ context.Context, queue queue) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

func (w *waiting) add(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key] = struct{}{}
}

func (w *waiting) remove(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, key)
}

// isBusy says whether Workspaces wait for a pass: new ones, or others.
func (w *waiting) isBusy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue != nil && w.queue.Len() > 0
}

// LookAgain has one Workspace looked at again, whatever it waits for.
func (r *Reconciler) LookAgain(key types.NamespacedName) {
	r.waiting.mu.Lock()
	defer r.waiting.mu.Unlock()
	if r.waiting.queue != nil {
		r.waiting.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// wake has all of them look again. Those that have to wait on say so anew.
func (w *waiting) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	inOrder := func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.keys), inOrder) {
		w.queue.Add(reconcile.Request{NamespacedName: key})
	}
	clear(w.keys)
}

// machineHandler brings machines to the Workspaces that they belong to. One that is gone frees money.
type machineHandler struct {
	handler.EventHandler
	waiting *waiting
}

// Delete implements handler.EventHandler.
func (h machineHandler) Delete(ctx context.Context, e ctrlevent.DeleteEvent, queue queue) {
	h.EventHandler.Delete(ctx, e, queue)
	h.waiting.wake()
}
