// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"sync"
	"time"
)

// Demand is the work of a set in this router.
type Demand struct {
	// Requests wait for a first replica, or have one. Tokens is their estimated work.
	Requests, Tokens int
	// Held is how many of them wait.
	Held int
	// Last is when a request last ended; zero if none has, or it was long ago.
	Last time.Time
}

// lastFor is how long the end of a set's last request is remembered.
const lastFor = 5 * time.Minute

// demands count the requests of sets, by the ID of the set. The zero value is ready.
type demands struct {
	mu   sync.Mutex
	byID map[string]*Demand
}

// share is the part of one request in a demand. A nil share has none.
type share struct {
	from   *demands
	id     string
	tokens int
}

// enter counts a request until its share leaves.
func (d *demands) enter(id string, tokens int, now time.Time) *share {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.byID[id]
	if found == nil {
		for other, each := range d.byID {
			if each.Requests == 0 && now.Sub(each.Last) > lastFor {
				delete(d.byID, other)
			}
		}
		if d.byID == nil {
			d.byID = map[string]*Demand{}
		}
		found = &Demand{}
		d.byID[id] = found
	}
	tokens = max(1, tokens)
	found.Requests++
	found.Tokens += tokens
	return &share{from: d, id: id, tokens: tokens}
}

// leave ends the request. Further calls have no effect.
func (s *share) leave(now time.Time) {
	if s == nil {
		return
	}
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	if found := s.from.byID[s.id]; found != nil && s.tokens > 0 {
		found.Requests--
		found.Tokens -= s.tokens
		found.Last = now
		s.tokens = 0
	}
}

// hold adds to the number of waiting requests.
func (s *share) hold(by int) {
	if s == nil {
		return
	}
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	s.from.byID[s.id].Held += by
}

func (d *demands) of(id string, now time.Time) Demand {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.byID[id]
	if found == nil || found.Requests == 0 && now.Sub(found.Last) > lastFor {
		return Demand{}
	}
	return *found
}
