// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package balance decides which replica of a model gets a request, and counts what is in flight.
//
// A request goes to the replica whose cache holds its prefix, unless that has more than its share of work; then to the
// next one by a longer prefix, then to the one with the least work. The decision follows from the names of the replicas
// and the work in flight, so routers agree without sharing anything.
//
// The package must not know HTTP, Kubernetes or keys: a server for ext_proc and an autoscaler use the same counters.
package balance

import (
	"maps"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// Bound is the most work of a replica that a prefix can choose, as a multiple of the mean.
const Bound = 1.25

// Slack is the work in tokens that no engine queues. Below it, a replica is never over its bound.
const Slack = 8192

// Request is what a decision depends on.
type Request struct {
	// Tokens is the estimated work.
	Tokens int
	// Session keeps requests together if it is not 0; it precedes prefixes.
	Session uint64
	// Prefixes are hashes of the prompt's beginning, the shortest first.
	Prefixes []uint64

	turn uint64
}

// Load is the work of a replica in flight.
type Load struct {
	Requests, Tokens int
}

// Counters count the work in flight by replica. The zero value is ready.
type Counters struct {
	mu    sync.Mutex
	loads map[string]Load
	turn  uint64
}

// Hold is a request's share of a replica's work.
type Hold struct {
	// Replica is the chosen one.
	Replica string
	tokens  int
	release sync.Once
	from    *Counters
}

// Place chooses one of the replicas and counts the request there until Release. It returns nil without a replica.
func (c *Counters) Place(replicas []string, request Request) *Hold {
	if len(replicas) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	loads := make([]int, len(replicas))
	for i, name := range replicas {
		loads[i] = c.loads[name].Tokens
	}
	c.turn++
	request.turn = c.turn
	chosen := replicas[Pick(replicas, loads, request)]
	if c.loads == nil {
		c.loads = map[string]Load{}
	}
	tokens := max(1, request.Tokens)
	now := c.loads[chosen]
	c.loads[chosen] = Load{now.Requests + 1, now.Tokens + tokens}
	return &Hold{Replica: chosen, tokens: tokens, from: c}
}

// Release ends a request's share. Further calls have no effect.
func (h *Hold) Release() {
	h.release.Do(func() {
		h.from.mu.Lock()
		defer h.from.mu.Unlock()
		now := h.from.loads[h.Replica]
		if now.Requests <= 1 {
			delete(h.from.loads, h.Replica)
			return
		}
		h.from.loads[h.Replica] = Load{now.Requests - 1, now.Tokens - h.tokens}
	})
}

// Loads returns a copy of the work in flight by replica; one without work is absent.
func (c *Counters) Loads() map[string]Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]Load, len(c.loads))
	maps.Copy(out, c.loads)
	return out
}

// Pick returns the index of the chosen replica. The loads are those of the replicas, in tokens. There must be one
// replica at least.
func Pick(replicas []string, loads []int, request Request) int {
	limit := bound(loads)
	if request.Session != 0 {
		if i := highest(replicas, request.Session); loads[i] <= limit {
			return i
		}
	}
	for _, prefix := range request.Prefixes {
		if i := highest(replicas, prefix); loads[i] <= limit {
			return i
		}
	}
	return least(replicas, loads, request)
}

// bound is the most tokens in flight that a replica may have before a request with affinity.
func bound(loads []int) int {
	total := 0
	for _, load := range loads {
		total += load
	}
	return max(Slack, int(Bound*float64(total)/float64(len(loads))))
}

// highest is rendezvous hashing: the replica with the highest hash of its name and the key. A new replica takes over
// its own keys only, and those of a lost one spread over the others.
func highest(replicas []string, key uint64) int {
	best, top := 0, uint64(0)
	for i, name := range replicas {
		if score := mix(xxhash.Sum64String(name) ^ key); score > top || i == 0 || score == top && name < replicas[best] {
			best, top = i, score
		}
	}
	return best
}

// mix spreads the bits of a number (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// least is the replica with the least work. Among equals the request's affinity decides, and without one they take
// turns.
func least(replicas []string, loads []int, request Request) int {
	key := request.Session
	if n := len(request.Prefixes); n > 0 {
		key ^= request.Prefixes[n-1]
	}
	if key == 0 {
		key = request.turn
	}
	best, top := -1, uint64(0)
	for i, name := range replicas {
		score := mix(xxhash.Sum64String(name) ^ key)
		if best < 0 || loads[i] < loads[best] || loads[i] == loads[best] && score > top {
			best, top = i, score
		}
	}
	return best
}
