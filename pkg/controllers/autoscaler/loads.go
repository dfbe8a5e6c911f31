// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// loadsFor is how long an observation counts.
const loadsFor = 2 * UsualInterval

// Loads holds the requests of the replicas of autoscaled sets at the last observation. The controller of sets deletes
// the least busy replica first.
type Loads struct {
	mu    sync.Mutex
	bySet map[types.NamespacedName]loads
}

type loads struct {
	at time.Time
	// requests are running or waiting, by the UID of the Workspace.
	requests map[types.UID]float64
}

// NewLoads returns Loads of no set.
func NewLoads() *Loads { return &Loads{bySet: map[types.NamespacedName]loads{}} }

// Of returns the number of requests of a set's replica; false if it is unknown, or too old.
func (l *Loads) Of(set types.NamespacedName, replica types.UID, now time.Time) (float64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.bySet[set]
	if now.Sub(known.at) > loadsFor {
		return 0, false
	}
	requests, ok := known.requests[replica]
	return requests, ok
}

// note replaces the observation of a set. Figures that an engine does not report are left out.
func (l *Loads) note(set types.NamespacedName, replicas []*asked, now time.Time) {
	out := loads{at: now, requests: map[types.UID]float64{}}
	for _, each := range replicas {
		if requests := each.signals.Running + each.signals.Waiting; each.problem == "" && requests >= 0 { // NaN is not
			out.requests[each.ws.UID] = requests
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bySet[set] = out
}

func (l *Loads) forget(set types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bySet, set)
}
