// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// watched are the objects seen by one process's watches. Each kind lags behind the server on its own.
type watched struct {
	cache.Cache // what is not simulated

	server    *server
	objects   [kinds]map[types.NamespacedName]client.Object
	seen      [kinds]int
	informers [kinds]controllertest.FakeInformer
	// silent is until when a kind shows nothing new.
	silent [kinds]time.Time
}

// lateness is how far the watches of a process are behind when it begins to lead, and for how long.
type lateness struct{ by, lasts time.Duration }

// watch has listed the existing objects when a process takes over: those shown so far, and of some kinds fewer.
func watch(s *server, late func() lateness) *watched {
	w := &watched{server: s}
	for k := range kinds {
		is := late()
		w.silent[k] = s.now().Add(is.lasts)
		w.objects[k], w.seen[k] = maps.Clone(s.objects[k]), len(s.log[k])
		for ; w.seen[k] > s.heard[k]; w.seen[k]-- {
			made := s.log[k][w.seen[k]-1]
			if !made.seen.After(s.now()) && !made.at.After(s.now().Add(-is.by)) {
				break
			}
			w.undo(made)
		}
	}
	return w
}

// undo takes a change back.
func (w *watched) undo(made change) {
	if made.before == nil {
		delete(w.objects[made.kind], client.ObjectKeyFromObject(made.after))
		return
	}
	w.objects[made.kind][client.ObjectKeyFromObject(made.before)] = made.before
}

// GetInformer implements cache.Cache.
func (w *watched) GetInformer(_ context.Context, of client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if _, isMetadata := of.(*metav1.PartialObjectMetadata); isMetadata {
		return &controllertest.FakeInformer{}, nil // of ConfigMaps, of which there are none
	}
	return &w.informers[kindOf(of)], nil
}

// WaitForCacheSync implements cache.Cache.
func (w *watched) WaitForCacheSync(context.Context) bool { return true }

// begin shows all existing objects.
func (w *watched) begin() {
	for k := range kinds {
		for _, object := range sorted(w.objects[k]) {
			w.informers[k].Add(object)
		}
	}
}

// next is the time of a kind's next shown change; zero if it is up to date.
func (w *watched) next(k kind) time.Time {
	if w.seen[k] == len(w.server.log[k]) {
		return time.Time{}
	}
	if at := w.server.log[k][w.seen[k]].seen; at.After(w.silent[k]) {
		return at
	}
	return w.silent[k]
}

// step shows the next change of a kind.
func (w *watched) step(k kind) {
	made := w.server.log[k][w.seen[k]]
	w.seen[k]++
	w.show(k, made.before, made.after)
}

// relist shows the current state of a kind: a broken watch skips the changes in between.
func (w *watched) relist(k kind) {
	w.seen[k] = len(w.server.log[k])
	for _, before := range sorted(w.objects[k]) {
		after := w.server.objects[k][client.ObjectKeyFromObject(before)]
		if after == nil || after.GetResourceVersion() != before.GetResourceVersion() {
			w.show(k, before, after)
		}
	}
	for _, after := range sorted(w.server.objects[k]) {
		if w.objects[k][client.ObjectKeyFromObject(after)] == nil {
			w.show(k, nil, after)
		}
	}
}

func (w *watched) show(k kind, before, after client.Object) {
	switch {
	case after == nil:
		delete(w.objects[k], client.ObjectKeyFromObject(before))
		w.informers[k].Delete(before)
	case before == nil:
		w.objects[k][client.ObjectKeyFromObject(after)] = after
		w.informers[k].Add(after)
	default:
		w.objects[k][client.ObjectKeyFromObject(after)] = after
		w.informers[k].Update(before, after)
	}
}

// queue is the controller's, on the simulation's clock: the simulation takes the due items, and the controller's own
// workers get nothing.
type queue struct {
	now      func() time.Time
	ready    []reconcile.Request
	later    map[reconcile.Request]time.Time
	failures map[reconcile.Request]int
	// asked is closed once a worker waits, because every watch is set up by then; done ends its waiting.
	asked, done chan struct{}
	once        sync.Once
}

func newQueue(now func() time.Time) *queue {
	return &queue{
		now: now, later: map[reconcile.Request]time.Time{}, failures: map[reconcile.Request]int{},
		asked: make(chan struct{}), done: make(chan struct{}),
	}
}

// options have a controller work from the queue.
func (q *queue) options() controller.Options {
	return controller.Options{
		SkipNameValidation: new(true),
		NewQueue: func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return q
		},
	}
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(item reconcile.Request) {
	if !slices.Contains(q.ready, item) {
		q.ready = append(q.ready, item)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(item reconcile.Request, after time.Duration) {
	at := q.now().Add(after)
	if known, ok := q.later[item]; !ok || at.Before(known) {
		q.later[item] = at
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface, as controllers do by default.
func (q *queue) AddRateLimited(item reconcile.Request) {
	after := 5 * time.Millisecond << min(q.failures[item], 18)
	q.failures[item]++
	q.AddAfter(item, min(after, 1000*time.Second))
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *queue) Forget(item reconcile.Request) { delete(q.failures, item) }

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *queue) NumRequeues(item reconcile.Request) int { return q.failures[item] }

// Get implements workqueue.TypedInterface for the workers of the controller.
func (q *queue) Get() (reconcile.Request, bool) {
	q.once.Do(func() { close(q.asked) })
	<-q.done
	return reconcile.Request{}, true
}

// Len, Done, ShutDown, ShutDownWithDrain and ShuttingDown implement workqueue.TypedInterface.
func (q *queue) Len() int               { return len(q.ready) }
func (q *queue) Done(reconcile.Request) {}
func (q *queue) ShutDown()              { close(q.done) }
func (q *queue) ShutDownWithDrain()     {}
func (q *queue) ShuttingDown() bool     { return false }

// take returns a due item, chosen by pick from so many.
func (q *queue) take(pick func(int) int) (reconcile.Request, bool) {
	q.ripen()
	if len(q.ready) == 0 {
		return reconcile.Request{}, false
	}
	i := pick(len(q.ready))
	out := q.ready[i]
	q.ready = append(q.ready[:i:i], q.ready[i+1:]...)
	return out, true
}

// ripen moves due items to the ready ones, in order.
func (q *queue) ripen() {
	for {
		var first reconcile.Request
		var at time.Time
		for item, due := range q.later {
			isEarlier := at.IsZero() || due.Before(at) || due.Equal(at) && item.String() < first.String()
			if !due.After(q.now()) && isEarlier {
				first, at = item, due
			}
		}
		if at.IsZero() {
			return
		}
		delete(q.later, first)
		q.Add(first)
	}
}

// next is the time of the next due item; zero if there is none.
func (q *queue) next() time.Time {
	if len(q.ready) > 0 {
		return q.now()
	}
	var at time.Time
	for _, due := range q.later {
		if at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at
}
