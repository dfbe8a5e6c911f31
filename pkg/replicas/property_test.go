// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a cluster that carries out decisions after random delays.
type world struct {
	random   *rand.Rand
	policy   Policy
	replicas []Replica
	created  int
	// isBroken: the current template never becomes ready.
	isBroken bool
}

func newWorld(seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 1))
	w := &world{random: random, policy: Policy{
		Replicas: random.IntN(6), MaxUnavailable: random.IntN(3), Partition: max(0, random.IntN(6)-3), OnDelete: random.IntN(8) == 0, IsRollback: random.IntN(5) == 0, CanRestore: random.IntN(2) == 0,
	}}
	if random.IntN(3) == 0 {
		w.policy.NodeLimit = 1 + random.IntN(8)
	}
	for range random.IntN(8) {
		w.add(Replica{
			IsCurrent: random.IntN(2) == 0, IsReady: random.IntN(2) == 0, IsLeaving: random.IntN(5) == 0,
			CanUpdate: random.IntN(2) == 0, LacksMachine: random.IntN(6) == 0, GainsByDeletion: random.IntN(6) == 0, Nodes: 1,
			IsProven: random.IntN(3) > 0, IsLoadKnown: random.IntN(2) == 0, Load: float64(random.IntN(4)),
			IsSteady: random.IntN(4) == 0, HourlyPrice: float64(random.IntN(2)) * (1 + float64(random.IntN(6))/50),
		})
	}
	return w
}

func (w *world) add(replica Replica) {
	replica.Name = fmt.Sprintf("r%03d", w.created)
	replica.Created = time.Unix(int64(w.created), 0)
	w.created++
	w.replicas = append(w.replicas, replica)
}

func (w *world) find(name string) *Replica {
	i := slices.IndexFunc(w.replicas, func(r Replica) bool { return r.Name == name })
	return &w.replicas[i]
}

// do carries out a decision.
func (w *world) do(d Decision) {
	for _, name := range d.Delete {
		w.find(name).IsLeaving = true
	}
	for _, name := range d.Update {
		replica := w.find(name)
		replica.IsCurrent, replica.IsReady, replica.IsProven = true, false, false
	}
	for i := range d.Create {
		w.add(Replica{IsCurrent: i >= d.Restore, CanUpdate: true, Nodes: w.random.IntN(2)})
	}
}

// pass simulates some time: some replicas become ready, get a plan, or vanish.
func (w *world) pass() {
	w.replicas = slices.DeleteFunc(w.replicas, func(r Replica) bool { return r.IsLeaving && w.random.IntN(3) == 0 })
	for i := range w.replicas {
		r := &w.replicas[i]
		if w.random.IntN(2) == 0 {
			r.Nodes = 1
		}
		if w.random.IntN(2) == 0 && (!w.isBroken || !r.IsCurrent) {
			r.IsReady, r.LacksMachine, r.GainsByDeletion = true, false, false
		}
		if r.IsReady && w.random.IntN(2) == 0 {
			r.IsProven = true
		}
	}
}

func (w *world) count(is func(Replica) bool) int {
	n := 0
	for _, replica := range w.replicas {
		if !replica.IsLeaving && is(replica) {
			n++
		}
	}
	return n
}

func (w *world) live() int  { return w.count(func(Replica) bool { return true }) }
func (w *world) ready() int { return w.count(func(r Replica) bool { return r.IsReady }) }
func (w *world) nodes() int {
	n := 0
	for _, replica := range w.replicas {
		n += max(1, replica.Nodes)
	}
	return n
}

const worlds = 5000

// TestConverges: if replicas become ready, a set reaches the desired number from any state, or the number that the
// limit allows. All have the current template except those that may keep theirs.
func TestConverges(t *testing.T) {
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		d := Decide(w.policy, w.replicas)
		for range 400 {
			w.do(d)
			w.pass()
			d = Decide(w.policy, w.replicas)
		}
		isStopped := d.IsLimited && d.IsIdle()
		if w.live() != w.policy.Replicas && !isStopped || !d.IsIdle() || d.IsRolling && !isStopped {
			t.Fatalf("seed %d: policy %+v ends with %+v and decision %+v", seed, w.policy, w.replicas, d)
		}
	}
}

// TestBounds: no decision creates replicas above the desired number, plus one in a rollout, or above the limit of
// machines. No decision takes down more ready replicas than it may.
func TestBounds(t *testing.T) {
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		w.isBroken = seed%3 == 0
		for range 60 {
			d := Decide(w.policy, w.replicas)
			live, ready, nodes := w.live(), w.ready(), w.nodes()
			w.do(d)
			most := w.policy.Replicas
			if d.IsRolling {
				most++
			}
			if w.live() > max(live, most) {
				t.Fatalf("seed %d: %+v makes %d replicas of %d with policy %+v", seed, d, w.live(), live, w.policy)
			}
			if w.policy.NodeLimit > 0 && d.Create > 0 && w.nodes() > max(nodes, w.policy.NodeLimit) {
				t.Fatalf("seed %d: %+v needs %d machines with policy %+v", seed, d, w.nodes(), w.policy)
			}
			floor := w.policy.Replicas
			if d.IsRolling {
				floor = max(1, w.policy.Replicas-w.policy.MaxUnavailable)
			}
			if w.ready() < min(ready, floor, w.policy.Replicas) {
				t.Fatalf("seed %d: %+v leaves %d of %d ready replicas with policy %+v", seed, d, w.ready(), ready, w.policy)
			}
			w.pass()
		}
	}
}

// TestBrokenTemplateReachesFew: a template that never becomes ready replaces no more ready replicas than may be
// unavailable.
func TestBrokenTemplateReachesFew(t *testing.T) {
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		w.isBroken = true
		w.policy.OnDelete, w.policy.Replicas = false, 1+w.random.IntN(5)
		w.replicas = nil
		for range w.policy.Replicas {
			w.add(Replica{IsReady: true, CanUpdate: w.random.IntN(2) == 0, Nodes: 1})
		}
		for range 100 {
			w.do(Decide(w.policy, w.replicas))
			w.pass()
			if floor := max(1, w.policy.Replicas-w.policy.MaxUnavailable); w.ready() < floor {
				t.Fatalf("seed %d: %d ready replicas, want at least %d: %+v", seed, w.ready(), floor, w.replicas)
			}
		}
	}
}

// TestDecisionsDoNotDependOnOrder: a list may have any order.
func TestDecisionsDoNotDependOnOrder(t *testing.T) {
	for seed := range uint64(worlds / 10) {
		w := newWorld(seed)
		want := fmt.Sprint(Decide(w.policy, w.replicas))
		w.random.Shuffle(len(w.replicas), func(i, j int) { w.replicas[i], w.replicas[j] = w.replicas[j], w.replicas[i] })
		if got := fmt.Sprint(Decide(w.policy, w.replicas)); got != want {
			t.Fatalf("seed %d: %s, and in another order %s", seed, want, got)
		}
	}
}

// TestPartitionHolds: if the previous template is known, no decision gives the current one to more replicas than a
// partition admits.
func TestPartitionHolds(t *testing.T) {
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		w.policy.CanRestore, w.policy.IsRollback, w.policy.OnDelete = true, false, false
		for step := range 60 {
			if step == 30 {
				w.policy.Replicas = w.random.IntN(6)
			}
			isCurrent := func(r Replica) bool { return r.IsCurrent }
			before, d := w.count(isCurrent), Decide(w.policy, w.replicas)
			w.do(d)
			most := w.policy.Replicas - min(w.policy.Partition, w.policy.Replicas)
			if got := w.count(isCurrent); got > max(before, most) {
				t.Fatalf("seed %d: %+v gives the current template to %d replicas, had %d, with policy %+v", seed, d, got, before, w.policy)
			}
			w.pass()
		}
	}
}

// TestHeldRolloutGoesNoFurther: while a rollout is held, no replica gets the current template, and one with the previous
// template stays ready, whatever the number of replicas becomes.
func TestHeldRolloutGoesNoFurther(t *testing.T) {
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		w.policy.CanRestore, w.policy.IsHeld, w.policy.IsRollback, w.policy.OnDelete = true, true, false, false
		w.policy.Replicas, w.policy.MaxUnavailable = 1+w.random.IntN(5), w.random.IntN(6)
		w.add(Replica{IsCurrent: true, IsReady: true, CanUpdate: true, Nodes: 1})
		w.add(Replica{IsReady: true, IsProven: true, CanUpdate: true, Nodes: 1})
		for step := range 60 {
			if step == 30 {
				w.policy.Replicas = 1 + w.random.IntN(5)
			}
			isCurrent := func(r Replica) bool { return r.IsCurrent }
			before, d := w.count(isCurrent), Decide(w.policy, w.replicas)
			w.do(d)
			if got := w.count(isCurrent); got > before || len(d.Update) > 0 {
				t.Fatalf("seed %d: %+v gives the current template to %d replicas, had %d, with policy %+v", seed, d, got, before, w.policy)
			}
			if w.count(func(r Replica) bool { return !r.IsCurrent && r.IsReady }) == 0 {
				t.Fatalf("seed %d: %+v leaves no replica with the previous template, with policy %+v", seed, d, w.policy)
			}
			w.pass()
		}
	}
}
