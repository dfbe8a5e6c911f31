// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation tells random stories of capacity to the real Reconciler of Workspaces.
package simulation

import (
	"flag"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	runs = flag.Int("runs", 600, "random stories to tell")
	from = flag.Uint64("from", 0, "seed of the first of them")
	only = flag.Int64("seed", -1, "tell only the story of this seed, and all of it")
	sums = flag.String("digest", "", "file to write a digest of each story's writes and events to")
)

// Times of a story: fault for a while, and then long enough for every cooldown.
const (
	mostTrouble = 90 * time.Minute
	patience    = 30 * time.Hour
	// calm is the time for all remaining events and sweeps.
	calm = 15 * time.Minute
)

func TestSimulation(t *testing.T) {
	f, err := newFacts()
	if err != nil {
		t.Fatal(err)
	}
	if *only >= 0 {
		story := &strings.Builder{}
		digest, err := simulate(t, f, uint64(*only), story)
		t.Logf("%s\nseed %d: %s: %v", story, *only, digest, err)
		if err != nil {
			t.Fail()
		}
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1600))
	broken, digests := tellAll(t, f)
	if *sums != "" {
		if err := writeDigests(*sums, digests); err != nil {
			t.Error(err)
		}
	}
	if len(broken) == 0 {
		return
	}
	seeds := slices.Sorted(maps.Keys(broken))
	for _, seed := range seeds {
		t.Errorf("seed %d: %v", seed, broken[seed])
	}
	story := &strings.Builder{}
	_, err = simulate(t, f, seeds[0], story)
	t.Logf("the story of seed %d:\n%s%v", seeds[0], story, err)
}

// mostBroken stories are enough.
const mostBroken = 3

// tellAll tells the stories of all seeds on all processors, and returns the violations, and the digest of each.
func tellAll(t *testing.T, f *facts) (map[uint64]error, map[uint64]string) {
	var next atomic.Uint64
	next.Store(*from)
	var mu sync.Mutex
	broken, digests := map[uint64]error{}, map[uint64]string{}
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1) - 1; seed < *from+uint64(*runs); seed = next.Add(1) - 1 {
				digest, err := simulate(t, f, seed, nil)
				mu.Lock()
				digests[seed] = digest
				if err != nil {
					broken[seed] = err
				}
				isEnough := len(broken) >= mostBroken
				mu.Unlock()
				if isEnough {
					return
				}
			}
		})
	}
	group.Wait()
	return broken, digests
}

// simulate tells the story of a seed, and returns its digest.
func simulate(t *testing.T, f *facts, seed uint64, story *strings.Builder) (string, error) {
	w := newWorld(t.Context(), f, seed, story)
	defer w.end()
	w.people.settle()
	w.begin()
	for end := start().Add(time.Duration(w.random.Int64N(int64(mostTrouble)))); w.now().Before(end) && w.broken == nil; {
		w.until(w.now().Add(w.karpenter.cloud.between(time.Minute, 20*time.Minute)))
		w.people.act()
		if w.random.IntN(3) == 0 {
			w.people.read()
		}
	}
	w.people.mend()
	for end := w.now().Add(patience); w.now().Before(end) && w.people.lacking() != "" && w.broken == nil; {
		w.until(w.now().Add(20 * time.Minute))
		w.people.read()
	}
	if lack := w.people.lacking(); lack != "" {
		w.fail("%s", lack)
	}
	w.faults = faults{}
	w.until(w.now().Add(calm))
	w.rules.atEnd()
	return w.digest.String(), w.broken
}

// until lets things happen until a moment.
func (w *world) until(at time.Time) {
	for w.now().Before(at) && w.broken == nil {
		w.step(at)
	}
}
