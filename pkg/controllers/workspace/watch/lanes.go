// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const (
	// lookupTimeout bounds the read of a Workspace from the cache, which waits for the cache's first list.
	lookupTimeout = time.Second
	// overtaking is how many requests of unsettled Workspaces may overtake one of a settled Workspace.
	overtaking = 4
)

// observer reads Workspaces from the cache.
type observer struct{ cached client.Reader }

// newQueue returns a queue that prefers Workspaces with something to do. controller-runtime's own queue with priorities
// would need a priority at each event, and may hang at the end of a leader (its issue 3538).
func (o observer) newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) Queue {
	stored := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: newLanes(o.isSettled)})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: stored})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: name, DelayingQueue: delayed,
	})
}

// isSettled reports whether a Workspace serves as its spec demands, by its status. So a Workspace that has just lost a
// pod counts as settled until its next pass.
func (o observer) isSettled(request reconcile.Request) bool {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	ws := &v1beta1.Workspace{}
	if err := o.cached.Get(ctx, request.NamespacedName, ws); err != nil || !ws.DeletionTimestamp.IsZero() {
		return false
	}
	serves := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionWorkspaceSucceeded)
	return serves != nil && serves.Status == metav1.ConditionTrue && serves.ObservedGeneration == ws.Generation
}

// lanes is the storage of a queue. A new leader gets requests for all Workspaces at once, and a pass over most of them
// changes nothing. So the requests of unsettled Workspaces overtake the others, which still get a share of the passes.
// The queue serialises all calls.
type lanes struct {
	isSettled func(reconcile.Request) bool
	// unsettled and settled are in order of arrival. A request that has changed lanes stays in settled, without being in
	// waiting.
	unsettled, settled []reconcile.Request
	// waiting holds the requests of the lane for settled Workspaces.
	waiting map[reconcile.Request]struct{}
	// overtaken counts the unsettled requests that have left since a settled one left, while settled ones were waiting.
	overtaken int
}

func newLanes(isSettled func(reconcile.Request) bool) *lanes {
	return &lanes{isSettled: isSettled, waiting: map[reconcile.Request]struct{}{}}
}

// Push implements workqueue.Queue.
func (l *lanes) Push(request reconcile.Request) {
	if !l.isSettled(request) {
		l.unsettled = append(l.unsettled, request)
		return
	}
	l.settled = append(l.settled, request)
	l.waiting[request] = struct{}{}
}

// Touch implements workqueue.Queue. The Workspace of a stored request may have changed.
func (l *lanes) Touch(request reconcile.Request) {
	if _, waits := l.waiting[request]; waits && !l.isSettled(request) {
		delete(l.waiting, request)
		l.unsettled = append(l.unsettled, request)
	}
}

// Len implements workqueue.Queue.
func (l *lanes) Len() int { return len(l.unsettled) + len(l.waiting) }

// Pop implements workqueue.Queue.
func (l *lanes) Pop() reconcile.Request {
	if len(l.waiting) == 0 || len(l.unsettled) > 0 && l.overtaken < overtaking {
		if len(l.waiting) > 0 {
			l.overtaken++
		}
		return first(&l.unsettled)
	}
	l.overtaken = 0
	for {
		request := first(&l.settled)
		if _, waits := l.waiting[request]; waits {
			delete(l.waiting, request)
			return request
		}
	}
}

// first removes the first request of a lane.
func first(lane *[]reconcile.Request) reconcile.Request {
	request := (*lane)[0]
	(*lane)[0] = reconcile.Request{} // the array stays in memory with the other requests
	*lane = (*lane)[1:]
	return request
}
