// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPick(t *testing.T) {
	replicas := []string{"a", "b", "c"}
	of := func(key uint64) int { return highest(replicas, key) }
	var other uint64 = 2
	for of(other) == of(1) {
		other++
	}
	high := func(at int) []int {
		loads := []int{0, 0, 0}
		loads[at] = Slack * 2
		return loads
	}
	cases := []struct {
		reason  string
		loads   []int
		request Request
		want    int
	}{
		{"a prefix finds its replica", []int{10, 10, 10}, Request{Prefixes: []uint64{1}}, of(1)},
		{"a session precedes the prefix", []int{0, 0, 0}, Request{Session: other, Prefixes: []uint64{1}}, of(other)},
		{"a replica above the bound passes to the longer prefix's", high(of(1)), Request{Prefixes: []uint64{1, other}}, of(other)},
		{"without affinity the least work", []int{30, 10, 20}, Request{}, 1},
		{"above the bound and without a longer prefix the least work", high(of(1)), Request{Prefixes: []uint64{1}}, least(replicas, high(of(1)), Request{Prefixes: []uint64{1}})},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if got := Pick(replicas, c.loads, c.request); got != c.want {
				t.Errorf("it picks %s, want %s", replicas[got], replicas[c.want])
			}
		})
	}
}

// TestBoundHolds places random requests and checks the invariant: a replica chosen by affinity is within the bound, and
// any other choice has the least work.
func TestBoundHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		replicas := make([]string, 1+random.IntN(8))
		loads := make([]int, len(replicas))
		for i := range replicas {
			replicas[i] = fmt.Sprintf("r%d", i)
		}
		for range 200 {
			request := Request{Prefixes: []uint64{random.Uint64N(5) + 1, random.Uint64()}}
			total, smallest := 0, loads[0]
			for _, load := range loads {
				total += load
				smallest = min(smallest, load)
			}
			got := Pick(replicas, loads, request)
			limit := max(Slack, int(Bound*float64(total)/float64(len(loads))))
			if loads[got] > limit && loads[got] != smallest {
				t.Fatalf("round %d: a replica with %d tokens is chosen, the bound is %d and the least %d", round, loads[got], limit, smallest)
			}
			loads[got] += 1 + random.IntN(5000)
		}
	}
}

// TestRoutersAgree: routers without shared state send a prefix to the same replica, in any order of the replicas, and a
// lost replica moves only its own prefixes.
func TestRoutersAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	replicas := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	var routers [4]Counters
	per := map[string]int{}
	for range 4000 {
		request := Request{Tokens: 100, Prefixes: []uint64{random.Uint64()}}
		chosen := map[string]bool{}
		for i := range routers {
			random.Shuffle(len(replicas), func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
			hold := routers[i].Place(replicas, request)
			hold.Release()
			chosen[hold.Replica] = true
			per[hold.Replica]++
		}
		if len(chosen) != 1 {
			t.Fatalf("four routers choose %v", chosen)
		}
		for name := range chosen {
			rest := without(replicas, name)
			if survivor := without(replicas, rest[0]); survivor[highest(survivor, request.Prefixes[0])] != name {
				t.Fatalf("the loss of %s moves a prefix of %s", rest[0], name)
			}
		}
	}
	for name, n := range per {
		if n > 4*4000/len(replicas)*5/4 {
			t.Errorf("%s has %d of %d prefixes: more than 1.25 of its share", name, n/4, 4000)
		}
	}
}

func without(list []string, name string) []string {
	var out []string
	for _, each := range list {
		if each != name {
			out = append(out, each)
		}
	}
	return out
}

// TestEqualReplicasTakeTurns: small requests without affinity do not all go to one idle replica.
func TestEqualReplicasTakeTurns(t *testing.T) {
	var counters Counters
	per := map[string]int{}
	for range 300 {
		hold := counters.Place([]string{"a", "b", "c"}, Request{Tokens: 1})
		per[hold.Replica]++
		hold.Release()
	}
	for _, name := range []string{"a", "b", "c"} {
		if per[name] < 60 {
			t.Errorf("%s got %d of 300 requests", name, per[name])
		}
	}
}

// TestCountersNeverLeak runs concurrent requests that end, retry, and release twice.
func TestCountersNeverLeak(t *testing.T) {
	var counters Counters
	var wait sync.WaitGroup
	for worker := range 16 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 5))
			var open []*Hold
			for range 2000 {
				replicas := []string{"a", "b", "c"}[:random.IntN(4)]
				hold := counters.Place(replicas, Request{Tokens: random.IntN(3), Prefixes: []uint64{random.Uint64()}})
				if hold == nil {
					if len(replicas) > 0 {
						t.Error("there is a replica and no place")
					}
					continue
				}
				open = append(open, hold)
				if random.IntN(2) == 0 {
					i := random.IntN(len(open))
					open[i].Release()
					if random.IntN(2) == 0 {
						open[i].Release() // cancelled and ended at once
					}
				}
			}
			for _, hold := range open {
				hold.Release()
			}
		})
	}
	wait.Wait()
	if diff := cmp.Diff(map[string]Load{}, counters.Loads()); diff != "" {
		t.Errorf("work stays counted (-want +got):\n%s", diff)
	}
}

func TestLoads(t *testing.T) {
	var counters Counters
	first := counters.Place([]string{"a"}, Request{Tokens: 10})
	counters.Place([]string{"a"}, Request{Tokens: 5})
	first.Release()
	if diff := cmp.Diff(map[string]Load{"a": {Requests: 1, Tokens: 5}}, counters.Loads()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
