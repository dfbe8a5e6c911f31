// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hold limits the requests that wait for a replica: their number, their bytes and their time. The limits of
// number and bytes apply to all models together, to each model and to each key.
//
// It decides whether a request may wait, and estimates the time of a start. It must not know HTTP, or how models start.
package hold

import (
	"sync"
	"time"
)

// Limits are the limits of all waiting requests together. A model may use half of them. A key may use half of them in
// total, and a quarter for each model.
type Limits struct {
	// Requests is how many may wait at once; with 0, none waits.
	Requests int
	// Bytes is the size of their bodies.
	Bytes int64
	// Time is how long a request may wait.
	Time time.Duration
}

// Room counts the waiting requests. It is safe for concurrent use.
type Room struct {
	limits  Limits
	mu      sync.Mutex
	total   crowd
	byKey   map[string]*crowd
	byModel map[string]*model
}

// crowd counts requests and the bytes of their bodies.
type crowd struct {
	requests int
	bytes    int64
}

type model struct {
	crowd
	byKey map[string]*crowd
	// starting is how many of the requests wait for a start, and since is when the first of them began; zero if none does.
	starting int
	since    time.Time
	// took is how long the last start took; 0 if there was none.
	took time.Duration
}

// New returns an empty room.
func New(limits Limits) *Room {
	return &Room{limits: limits, byKey: map[string]*crowd{}, byModel: map[string]*model{}}
}

// IsOpen reports whether any request may wait.
func (r *Room) IsOpen() bool { return r.limits.Requests > 0 }

// Time returns how long a request may wait.
func (r *Room) Time() time.Duration { return r.limits.Time }

// Place is the place of a waiting request in a Room.
type Place struct {
	of   *Room
	who  Request
	once sync.Once
	// awaitsStart is guarded by the room's lock.
	awaitsStart bool
}

// Request describes a request that needs to wait.
type Request struct {
	// Model is the ID of the owner.
	Model string
	// Key is the name of the client's key; if it is empty, the limits per key do not apply.
	Key string
	// Bytes is the size of the body.
	Bytes int64
}

// Full names a limit that is reached.
type Full string

// The limits.
const (
	FullForAll   Full = "all models"
	FullForModel Full = "the model"
	FullForKey   Full = "the key"
)

// Enter admits a request, or returns the limit that is reached. The caller must call Leave for an admitted request.
func (r *Room) Enter(who Request) (*Place, Full) {
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
	r.count(m, who, 1)
	return &Place{of: r, who: who}, ""
}

// half returns half of the limits, rounded up.
func (l Limits) half() Limits {
	return Limits{Requests: (l.Requests + 1) / 2, Bytes: (l.Bytes + 1) / 2}
}

// admits reports whether one more request stays within the limits. A nil crowd is empty.
func admits(c *crowd, bytes int64, most Limits) bool {
	if c == nil {
		c = &crowd{}
	}
	return c.requests < most.Requests && c.bytes+bytes <= most.Bytes
}

// count adds a request if by is 1, and removes it if by is -1.
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

// AwaitStart records that the request waits for a start of the model, and not for an adapter of a running one. Further
// calls have no effect.
func (p *Place) AwaitStart(now time.Time) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.awaitsStart {
		return
	}
	p.awaitsStart = true
	m := p.of.byModel[p.who.Model]
	if m.starting == 0 {
		m.since = now
	}
	m.starting++
}

// Leave ends the wait. hasStarted means that the model has a replica. Further calls have no effect.
func (p *Place) Leave(hasStarted bool, now time.Time) {
	p.once.Do(func() {
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		m := p.of.byModel[p.who.Model]
		p.of.count(m, p.who, -1)
		if hasStarted && !m.since.IsZero() {
			m.took, m.since = now.Sub(m.since), time.Time{}
		}
		if p.awaitsStart {
			m.starting--
		}
		if m.starting == 0 {
			m.since = time.Time{}
		}
		if m.requests == 0 && m.took == 0 {
			delete(p.of.byModel, p.who.Model)
		}
	})
}

// Estimate returns the remaining time of a model's start: the duration of its last start, less the time since the first
// request began to wait for it. ok is false if no start is known.
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

// Held returns the number and the bytes of the waiting requests.
func (r *Room) Held() (requests int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total.requests, r.total.bytes
}
