// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hold bounds the requests that wait for a replica: their number and bytes, for all models and for each, and
// the time.
//
// It decides which request may wait and how long a start probably takes. It must not know HTTP or how a model is
// started.
package hold

import (
	"sync"
	"time"
)

// Limits of the requests that wait. A model may have half of each.
type Limits struct {
	// Requests that wait at once; 0: none waits.
	Requests int
	// Bytes of their bodies.
	Bytes int64
	// Time that a request waits at most.
	Time time.Duration
}

// Room has the waiting requests. It is safe for concurrent use.
type Room struct {
	limits  Limits
	mu      sync.Mutex
	total   crowd
	byModel map[string]*model
}

// crowd is a number of requests.
type crowd struct {
	requests int
	bytes    int64
}

type model struct {
	crowd
	// since the first of those that wait; zero if none waits.
	since time.Time
	// took is how long the last start took; 0 if none was seen.
	took time.Duration
}

// New returns an empty room.
func New(limits Limits) *Room { return &Room{limits: limits, byModel: map[string]*model{}} }

// IsOpen reports whether any request may wait.
func (r *Room) IsOpen() bool { return r.limits.Requests > 0 }

// Time that a request waits at most.
func (r *Room) Time() time.Duration { return r.limits.Time }

// Place is a request that waits.
type Place struct {
	of    *Room
	name  string
	bytes int64
	once  sync.Once
}

// Enter admits a request for a model, or returns nil if the limits are reached. Leave must follow.
func (r *Room) Enter(name string, bytes int64, now time.Time) *Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byModel[name]
	if m == nil {
		m = &model{}
	}
	if !r.total.admits(bytes, r.limits.Requests, r.limits.Bytes) || !m.admits(bytes, share(r.limits.Requests), share(r.limits.Bytes)) {
		return nil
	}
	r.byModel[name] = m
	if m.requests == 0 {
		m.since = now
	}
	r.total.add(1, bytes)
	m.add(1, bytes)
	return &Place{of: r, name: name, bytes: bytes}
}

// share is the half that a model may have.
func share[N int | int64](n N) N { return (n + 1) / 2 }

func (c *crowd) admits(bytes int64, requests int, most int64) bool {
	return c.requests < requests && c.bytes+bytes <= most
}

func (c *crowd) add(requests int, bytes int64) {
	c.requests += requests
	c.bytes += bytes
}

// Leave ends the wait. hasStarted: a replica is ready. Further calls have no effect.
func (p *Place) Leave(hasStarted bool, now time.Time) {
	p.once.Do(func() {
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		m := p.of.byModel[p.name]
		p.of.total.add(-1, -p.bytes)
		m.add(-1, -p.bytes)
		if hasStarted && !m.since.IsZero() {
			m.took, m.since = now.Sub(m.since), time.Time{}
		}
		if m.requests > 0 {
			return
		}
		m.since = time.Time{}
		if m.took == 0 {
			delete(p.of.byModel, p.name)
		}
	})
}

// Estimate is how long a model's start will take from now: the time of its last one, less what has passed. ok is false
// if no start was seen.
func (r *Room) Estimate(name string, now time.Time) (left time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byModel[name]
	if m == nil || m.took == 0 {
		return 0, false
	}
	if m.since.IsZero() {
		return m.took, true
	}
	return max(0, m.took-now.Sub(m.since)), true
}

// Held returns the number of requests that wait, and their bytes.
func (r *Room) Held() (requests int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total.requests, r.total.bytes
}
