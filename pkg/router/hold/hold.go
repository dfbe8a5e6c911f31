// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hold bounds the requests waiting for a replica: their number and bytes, for all models, for each model and for
// each key, and the time.
//
// It decides whether a request may wait, and the probable time of a start. It must not know HTTP or the start of a
// model.
package hold

import (
	"sync"
	"time"
)

// Limits of waiting requests. A model may have half of each, a key half of that for each model, and half in all.
type Limits struct {
	// Requests waiting at once; 0: none waits.
	Requests int
	// Bytes of their bodies.
	Bytes int64
	// Longest time of a waiting request.
	Time time.Duration
}

// Room has the waiting requests. It is safe for concurrent use.
type Room struct {
	limits  Limits
	mu      sync.Mutex
	total   crowd
	byKey   map[string]*crowd
	byModel map[string]*model
}

// crowd is a number of requests.
type crowd struct {
	requests int
	bytes    int64
}

type model struct {
	crowd
	byKey map[string]*crowd
	// since the first waiting request; zero if none waits.
	since time.Time
	// took is how long the last start took; 0 if none was seen.
	took time.Duration
}

// New returns an empty room.
func New(limits Limits) *Room {
	return &Room{limits: limits, byKey: map[string]*crowd{}, byModel: map[string]*model{}}
}

// IsOpen reports whether any request may wait.
func (r *Room) IsOpen() bool { return r.limits.Requests > 0 }

// Time is the longest time of a waiting request.
func (r *Room) Time() time.Duration { return r.limits.Time }

// Place is a waiting request.
type Place struct {
	of   *Room
	who  Request
	once sync.Once
}

// Request is one that would wait.
type Request struct {
	// Model names the owner.
	Model string
	// Key names the client's key; without one, only the limits of the model count.
	Key string
	// Bytes of the body.
	Bytes int64
}

// Full is a limit that keeps a request from waiting.
type Full string

// The limits.
const (
	FullForAll   Full = "all models"
	FullForModel Full = "the model"
	FullForKey   Full = "the key"
)

// Enter admits a request, or returns the limit that is reached. Leave must follow an admission.
func (r *Room) Enter(who Request, now time.Time) (*Place, Full) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.byModel[who.Model]
	if m == nil {
		m = &model{byKey: map[string]*crowd{}}
	}
	whole := r.limits
	half := whole.half()
	if who.Key != "" && (!admits(r.byKey[who.Key], who.Bytes, half) || !admits(m.byKey[who.Key], who.Bytes, half.half())) {
		return nil, FullForKey
	}
	if !admits(&m.crowd, who.Bytes, half) {
		return nil, FullForModel
	}
	if !admits(&r.total, who.Bytes, whole) {
		return nil, FullForAll
	}
	r.byModel[who.Model] = m
	if m.requests == 0 {
		m.since = now
	}
	r.count(m, who, 1)
	return &Place{of: r, who: who}, ""
}

// half of the limits, at least one request.
func (l Limits) half() Limits {
	return Limits{Requests: (l.Requests + 1) / 2, Bytes: (l.Bytes + 1) / 2}
}

// admits reports whether another request keeps within limits; a missing crowd is empty.
func admits(c *crowd, bytes int64, most Limits) bool {
	if c == nil {
		c = &crowd{}
	}
	return c.requests < most.Requests && c.bytes+bytes <= most.Bytes
}

// count adds a request, or removes it.
func (r *Room) count(m *model, who Request, by int) {
	for _, c := range []*crowd{&r.total, &m.crowd} {
		c.add(by, who.Bytes)
	}
	if who.Key == "" {
		return
	}
	for _, byKey := range []map[string]*crowd{r.byKey, m.byKey} {
		if byKey[who.Key] == nil {
			byKey[who.Key] = &crowd{}
		}
		byKey[who.Key].add(by, who.Bytes)
		if byKey[who.Key].requests == 0 {
			delete(byKey, who.Key)
		}
	}
}

func (c *crowd) add(requests int, bytes int64) {
	c.requests += requests
	c.bytes += int64(requests) * bytes
}

// Leave ends the wait. hasStarted: a replica is ready. Further calls have no effect.
func (p *Place) Leave(hasStarted bool, now time.Time) {
	p.once.Do(func() {
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		m := p.of.byModel[p.who.Model]
		p.of.count(m, p.who, -1)
		if hasStarted && !m.since.IsZero() {
			m.took, m.since = now.Sub(m.since), time.Time{}
		}
		if m.requests > 0 {
			return
		}
		m.since = time.Time{}
		if m.took == 0 {
			delete(p.of.byModel, p.who.Model)
		}
	})
}

// Estimate is the time to the end of a model's start: the time of its last start, less the elapsed time. ok is false if
// no start was seen.
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

// Held returns the number of waiting requests, and their bytes.
func (r *Room) Held() (requests int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total.requests, r.total.bytes
}
