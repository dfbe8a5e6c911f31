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
	// Loading is how many requests wait for an adapter that a ready replica loads. More replicas would not load it sooner,
	// so these are not in Requests and Tokens.
	Loading int
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
	wait   wait
}

// wait is the reason why a request waits.
type wait int

const (
	forNothing wait = iota
	// forReplica: for the set's first replica.
	forReplica
	// forAdapter: for an adapter that a ready replica loads.
	forAdapter
)

// enter counts a request until its share leaves.
func (d *demands) enter(id string, tokens int, now time.Time) *share {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.byID[id]
	if found == nil {
		for other, each := range d.byID {
			if each.Requests+each.Loading == 0 && now.Sub(each.Last) > lastFor {
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
		s.move(found, forNothing)
		found.Requests--
		found.Tokens -= s.tokens
		found.Last = now
		s.tokens = 0
	}
}

// await sets the reason why the request waits.
func (s *share) await(what wait) {
	if s == nil {
		return
	}
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	if found := s.from.byID[s.id]; found != nil && s.tokens > 0 {
		s.move(found, what)
	}
}

// move counts the request as one that waits for something else.
func (s *share) move(in *Demand, what wait) {
	in.count(s.wait, s.tokens, -1)
	in.count(what, s.tokens, 1)
	s.wait = what
}

// count adds a request if by is 1, and removes it if by is -1.
func (d *Demand) count(what wait, tokens, by int) {
	switch what {
	case forReplica:
		d.Held += by
	case forAdapter:
		d.Loading += by
		d.Requests -= by
		d.Tokens -= by * tokens
	case forNothing:
	}
}

func (d *demands) of(id string, now time.Time) Demand {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.byID[id]
	if found == nil || found.Requests+found.Loading == 0 && now.Sub(found.Last) > lastFor {
		return Demand{}
	}
	return *found
}
