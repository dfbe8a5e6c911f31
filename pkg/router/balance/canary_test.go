// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCanaryShare: canaries get their share of the requests, whatever their number and load, and also if other models
// have requests in between.
func TestCanaryShare(t *testing.T) {
	const requests = 10000
	for _, percent := range []int{0, 1, 5, 50, 99, 100} {
		for _, canaries := range [][]string{{"a"}, {"a", "b", "c"}} {
			random := rand.New(rand.NewPCG(uint64(percent), uint64(len(canaries))))
			var counters Counters
			got := 0
			for range requests {
				for range random.IntN(3) {
					counters.Place([]string{"other"}, Request{}).Release()
				}
				request := Request{
					Tokens: 1 + random.IntN(100000), Prefixes: []uint64{random.Uint64()}, Canary: &Canary{Replicas: canaries, Percent: percent},
				}
				if request.Canary.Has(counters.Place([]string{"a", "b", "c", "d", "e"}, request).Replica) {
					got++
				}
			}
			share := 100 * float64(got) / requests
			if isExact := percent == 0 || percent == 100; isExact && share != float64(percent) || math.Abs(share-float64(percent)) > 1.5 {
				t.Errorf("%d canaries of 5 get %.1f%% of the requests, want %d%%", len(canaries), share, percent)
			}
		}
	}
}

// TestSessionsStayInTheirGroup: routers without shared state send all requests of a session to one group, and the
// canaries' share of the sessions is right.
func TestSessionsStayInTheirGroup(t *testing.T) {
	const sessions = 10000
	random := rand.New(rand.NewPCG(7, 8))
	var routers [2]Counters
	got := 0
	for range sessions {
		request := Request{Session: random.Uint64() | 1, Canary: &Canary{Replicas: []string{"a"}, Percent: 10}}
		isCanary := routers[0].Place([]string{"a", "b", "c"}, request).Replica == "a"
		for range 3 {
			request.Prefixes = []uint64{random.Uint64()}
			if (routers[1].Place([]string{"a", "b", "c"}, request).Replica == "a") != isCanary {
				t.Fatal("a session changes its group")
			}
		}
		if isCanary {
			got++
		}
	}
	if share := 100 * float64(got) / sessions; math.Abs(share-10) > 1.5 {
		t.Errorf("the canary gets %.1f%% of the sessions, want 10%%", share)
	}
}

// TestSessionsOfACanaryChange: a session that reaches one canary is no more likely to reach the next one.
func TestSessionsOfACanaryChange(t *testing.T) {
	random, both := rand.New(rand.NewPCG(1, 2)), 0
	const sessions = 10000
	for range sessions {
		request := Request{Session: random.Uint64() | 1, Canary: &Canary{ID: "one", Percent: 10}}
		isFirst := isBelow(request, 10)
		request.Canary = &Canary{ID: "another", Percent: 10}
		if isFirst && isBelow(request, 10) {
			both++
		}
	}
	if share := 100 * float64(both) / sessions; math.Abs(share-1) > 0.5 {
		t.Errorf("%.1f%% of the sessions reach both canaries, want 1%%", share)
	}
}

// TestOneGroupIsEnough: the share never leaves a request without a replica.
func TestOneGroupIsEnough(t *testing.T) {
	cases := []struct {
		reason   string
		replicas []string
		canary   *Canary
		want     []string
	}{
		{"no canary", []string{"a", "b"}, nil, []string{"a", "b"}},
		{"the canaries are gone", []string{"b"}, &Canary{Replicas: []string{"a"}, Percent: 100}, []string{"b"}},
		{"only canaries are left", []string{"a"}, &Canary{Replicas: []string{"a"}, Percent: 0}, []string{"a"}},
		{"no Workspace has the new template yet", []string{"a", "b"}, &Canary{Replicas: nil, Percent: 100}, []string{"a", "b"}},
		{"none of the requests", []string{"a", "b"}, &Canary{Replicas: []string{"a"}, Percent: 0}, []string{"b"}},
		{"no share", []string{"a", "b"}, &Canary{Replicas: []string{"a"}, IsByLoad: true}, []string{"a", "b"}},
		{"a changing replica is no canary", []string{"a", "b", "c"}, &Canary{Replicas: []string{"a"}, Changing: []string{"b"}, Percent: 100}, []string{"a"}},
		{"and keeps its former requests", []string{"a", "b", "c"}, &Canary{Replicas: []string{"a"}, Changing: []string{"b"}, Percent: 0}, []string{"b", "c"}},
		{"all of the requests", []string{"a", "b"}, &Canary{Replicas: []string{"a"}, Percent: 100}, []string{"a"}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if diff := cmp.Diff(c.want, group(c.replicas, Request{Canary: c.canary, turn: 3})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStaying: a stream that goes on elsewhere stays with its template.
func TestStaying(t *testing.T) {
	canary := &Canary{Replicas: []string{"a", "b"}, Changing: []string{"c"}, Percent: 5}
	if !canary.Staying(false).IsChanging("c") {
		t.Error("a changing replica counts as one with the previous template")
	}
	for _, isCanary := range []bool{false, true} {
		for turn := range uint64(100) {
			chosen := group([]string{"a", "b", "c"}, Request{Canary: canary.Staying(isCanary), turn: turn})
			if canary.Has(chosen[0]) != isCanary {
				t.Fatalf("from a canary: %t, to %v", isCanary, chosen)
			}
		}
	}
	if (*Canary)(nil).Staying(true) != nil {
		t.Error("without a canary, there is no group")
	}
}
