// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package endpoint creates the Services of Workspaces outside of their reconciliation. An API server assigns addresses
// one at a time, so each of many simultaneous requests takes seconds.
//
// It decides when to write a Service, and when to retry. It must not depend on the purpose of the Service, or on the
// state of its Workspace.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

// ControllerName is the name of the controller in logs and metrics.
const ControllerName = "endpoint"

// workers bounds the simultaneous writes of Services. The writes wait for each other in the API server, and leave it
// capacity for other requests.
const workers = 16

// The delay after a failure begins with soon and grows to seldom: an obstacle such as a quota disappears without an
// event.
const (
	soon   = 200 * time.Millisecond
	seldom = time.Minute
)

// leaving is the delay of a retry while an earlier Service of that name is being deleted.
const leaving = 2 * time.Second

// Applier writes this controller's objects, and never changes an object that somebody else owns.
type Applier interface {
	Apply(ctx context.Context, owner, desired client.Object) (bool, error)
}

type workQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// lag is how long a written Service may be missing from the cache before it is written again.
const lag = 10 * time.Second

// order is a Service to write.
type order struct {
	owner   *v1beta1.Workspace
	service client.Object
	// failure is the error of the last try; nil before the first.
	failure error
	// done is when the Service reached the desired state; zero before.
	done time.Time
}

// Queue holds the Services to write. After a restart it is empty: callers that miss a Service order it again.
type Queue struct {
	applier Applier
	clock   clock.PassiveClock

	mu     sync.Mutex
	orders map[types.NamespacedName]*order
	queue  workQueue
	// tell requests another pass over a Workspace.
	tell func(types.NamespacedName)
}

// New returns an empty Queue. It writes nothing before SetupWithManager.
func New(applier Applier, clock clock.PassiveClock) *Queue {
	return &Queue{applier: applier, clock: clock, orders: map[types.NamespacedName]*order{}, tell: func(types.NamespacedName) {}}
}

// SetupWithManager registers the Queue. The Queue calls tell for each owner whose Service cannot be written.
func (q *Queue) SetupWithManager(mgr manager.Manager, options controller.Options, tell func(types.NamespacedName)) error {
	q.tell = tell
	options.MaxConcurrentReconciles = workers
	options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soon, seldom)
	err := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		WatchesRawSource(source.Func(q.start)).
		Complete(q)
	if err != nil {
		return fmt.Errorf("setting up the %s controller: %w", ControllerName, err)
	}
	return nil
}

// start implements the source of the controller: it keeps the queue.
func (q *Queue) start(_ context.Context, queue workQueue) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = queue
	for key := range q.orders {
		queue.Add(reconcile.Request{NamespacedName: key})
	}
	return nil
}

// Order queues a Service, unless the same Service is queued or was just written. It returns at once, with the error of
// the last try for the same Service.
func (q *Queue) Order(owner *v1beta1.Workspace, service client.Object) error {
	key := client.ObjectKeyFromObject(owner)
	q.mu.Lock()
	defer q.mu.Unlock()
	known := q.orders[key]
	isSame := known != nil && known.owner.GetUID() == owner.GetUID() && equality.Semantic.DeepEqual(known.service, service)
	if isSame && (known.done.IsZero() || q.clock.Since(known.done) < lag) {
		return known.failure
	}
	q.orders[key] = &order{owner: owner.DeepCopy(), service: service}
	if q.queue != nil {
		q.queue.Add(reconcile.Request{NamespacedName: key})
	}
	return nil
}

// Forget drops a Workspace's order: its Service exists, or is no longer wanted.
func (q *Queue) Forget(owner types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.orders, owner)
}

// Reconcile writes a Workspace's queued Service, if there is one.
func (q *Queue) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	q.mu.Lock()
	ordered := q.orders[request.NamespacedName]
	q.mu.Unlock()
	if ordered == nil || !ordered.done.IsZero() {
		return reconcile.Result{}, nil
	}
	_, err := q.applier.Apply(ctx, ordered.owner, ordered.service)
	if isNews := q.settle(ordered, err); isNews {
		q.tell(request.NamespacedName)
	}
	if wait := expected(err); wait > 0 {
		log.FromContext(ctx).V(1).Info("retrying a Service", "reason", err.Error())
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("creating the Service of workspace %s: %w", request.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// expected returns the retry delay for an error that the Workspace reports: another Service has the name, or an earlier
// Service is being deleted. It returns zero for all other errors.
func expected(err error) time.Duration {
	if _, isTaken := errors.AsType[*apply.TakenError](err); isTaken {
		return seldom
	}
	if _, isLeaving := errors.AsType[*apply.TerminatingError](err); isLeaving {
		return leaving
	}
	return 0
}

// settle records the result of a try, and reports whether it is a new error for the caller. A watch reports written
// Services.
func (q *Queue) settle(ordered *order, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	isNews := err != nil && (ordered.failure == nil || ordered.failure.Error() != err.Error())
	ordered.failure = err
	if err == nil {
		ordered.done = q.clock.Now()
	}
	return isNews
}
