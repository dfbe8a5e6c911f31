// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package balance decides which replica of a model gets a request, and counts the work in flight.
//
// A session, or else the beginning of the prompt, selects a replica, because that replica has the text in its KV cache.
// If the replica has more than its share of the work, a longer prefix of the prompt selects another one. If all of
// these are busy, the request goes to the replica with the least work. The decision depends only on the names of the
// replicas and their work in flight, so routers agree without shared state. While a new template of a model has a canary,
// a fixed share of the requests goes to its replicas, and the above applies within each of the two groups.
//
// The package must not know HTTP, Kubernetes or keys: a server for ext_proc and an autoscaler use the same counters.
package balance

import (
	"maps"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// Bound limits affinity: a session or prefix selects a replica only while its work is at most this multiple of the
// mean.
const Bound = 1.25

// Slack is an amount of work, in tokens, that every engine processes without a queue. With at most this work, a replica
// is never over its bound.
const Slack = 8192

// Request has the inputs of a decision.
type Request struct {
	// Tokens is the estimated work, in tokens.
	Tokens int
	// Session is a hash that keeps requests together. It takes precedence over prefixes; 0 means no session.
	Session uint64
	// Prefixes are hashes of the prompt's beginning, the shortest first.
	Prefixes []uint64
	// Canary has the replicas with a new template; nil if all replicas have the same.
	Canary *Canary

	turn uint64
}

// Canary is a group of replicas that is compared with the others, or has a fixed share of the requests.
type Canary struct {
	// ID identifies the group's template. Clients do not know it.
	ID       string
	Replicas []string
	// Changing are replicas that are to get the new template, and may still answer with the previous one. They have no part
	// in the canaries' share, and in no comparison.
	Changing []string
	// IsByLoad: the group has no fixed share.
	IsByLoad bool
	// Percent of the requests for the group, from 0 to 100. It applies while both groups have replicas.
	Percent int
	// Split is the composition of the model. Requests under different ones are not added up.
	Split Split
}

// Split has the numbers of replicas by template, ready or not, and the new template's share of the requests.
type Split struct{ New, Previous, Percent int }

// Staying returns the same groups, with all requests for the canaries or none.
func (c *Canary) Staying(isCanary bool) *Canary {
	if c == nil {
		return nil
	}
	out := &Canary{ID: c.ID, Replicas: c.Replicas, Changing: c.Changing, Split: c.Split}
	if isCanary {
		out.Percent = 100
	}
	return out
}

// Has reports whether a replica is one of the canaries.
func (c *Canary) Has(replica string) bool { return c != nil && slices.Contains(c.Replicas, replica) }

// IsChanging reports whether the template of a replica is unknown.
func (c *Canary) IsChanging(replica string) bool {
	return c != nil && slices.Contains(c.Changing, replica)
}

// Load is a replica's work in flight.
type Load struct {
	Requests, Tokens int
}

// Counters count the work in flight of each replica. The zero value is ready.
type Counters struct {
	mu    sync.Mutex
	loads map[string]Load
	turn  uint64
}

// Hold counts a request as work of a replica until Release.
type Hold struct {
	// Replica is the address of the chosen replica.
	Replica string
	tokens  int
	release sync.Once
	from    *Counters
}

// Place chooses a replica and counts the request there until Release. It returns nil if there are no replicas.
func (c *Counters) Place(replicas []string, request Request) *Hold {
	if len(replicas) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	request.turn = c.turn
	replicas = group(replicas, request)
	loads := make([]int, len(replicas))
	for i, name := range replicas {
		loads[i] = c.loads[name].Tokens
	}
	chosen := replicas[Pick(replicas, loads, request)]
	if c.loads == nil {
		c.loads = map[string]Load{}
	}
	tokens := max(1, request.Tokens)
	now := c.loads[chosen]
	c.loads[chosen] = Load{now.Requests + 1, now.Tokens + tokens}
	return &Hold{Replica: chosen, tokens: tokens, from: c}
}

// Release subtracts the request from the work of its replica. Further calls have no effect.
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

// Loads returns a copy of the work in flight by replica. Replicas without work are absent.
func (c *Counters) Loads() map[string]Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]Load, len(c.loads))
	maps.Copy(out, c.loads)
	return out
}

// Pick returns the index of the chosen replica. There must be at least one replica. Loads has the work of each replica,
// in tokens.
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

// group returns the replicas for a request: the canaries or the others. All requests of a session go to one group.
func group(replicas []string, request Request) []string {
	if request.Canary == nil || request.Canary.IsByLoad {
		return replicas
	}
	var canaries, others []string
	for _, name := range replicas {
		if request.Canary.Has(name) {
			canaries = append(canaries, name)
		} else {
			others = append(others, name)
		}
	}
	if len(others) == 0 || len(canaries) > 0 && isBelow(request, request.Canary.Percent) {
		return canaries
	}
	return others
}

// isBelow is true for that percentage of the sessions, and of the requests without a session. The sessions depend on the
// template: no client is among the first with every new one, or finds out how to get there.
func isBelow(request Request, percent int) bool {
	point := request.turn * goldenRatio // multiples of it fill the range evenly
	if request.Session != 0 {
		point = mix(request.Session ^ xxhash.Sum64String(request.Canary.ID))
	}
	return point>>32 < uint64(percent)<<32/100
}

// goldenRatio is 2^64 divided by the golden ratio.
const goldenRatio = 0x9e3779b97f4a7c15

// bound returns the most tokens that a replica may have in flight and still get a request by affinity.
func bound(loads []int) int {
	total := 0
	for _, load := range loads {
		total += load
	}
	return max(Slack, int(Bound*float64(total)/float64(len(loads))))
}

// highest returns the replica with the highest hash of its name and the key (rendezvous hashing). A new replica takes
// over some keys, and no key moves between the others. The keys of a lost replica spread over the others.
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

// least returns the replica with the least work. Among equal replicas the request's affinity decides; requests without
// affinity take turns.
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
