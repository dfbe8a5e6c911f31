// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// usual returns a policy with the default targets.
func usual(least, most int) autoscale.Policy {
	p := policy(least, most)
	p.Targets = []autoscale.Target{{Metric: autoscale.KVCacheUse, Value: 0.7}, {Metric: autoscale.WaitingRequests, Value: 1}}
	return p
}

// woken simulates a wake: nothing runs for five minutes, then one replica does. load sets its load for the time since
// then. woken returns the highest number of replicas in each minute. Only one replica is ever ready.
func woken(p autoscale.Policy, minutes int, load func(since time.Duration, e *autoscale.Engine)) []int {
	state, desired, most := autoscale.State{}, 0, make([]int, minutes)
	const startUp = 5 * time.Minute
	for since := -startUp; since < time.Duration(minutes)*time.Minute; since += 15 * time.Second {
		s := autoscale.Signals{
			Now: start.Add(since), Desired: desired, Woken: start.Add(-startUp), StartUps: []time.Duration{startUp},
		}
		if since >= 0 {
			s.Engines = engines(1, 0)
			load(since, &s.Engines[0])
		}
		var got autoscale.Decision
		got, state = autoscale.Decide(p, s, state)
		desired = got.Replicas
		if since >= 0 {
			most[int(since/time.Minute)] = max(most[int(since/time.Minute)], desired)
		}
	}
	return most
}

// TestWakeFindsAQueue: the first replica after zero gets all requests that waited for it. Requests that it answers
// within minutes do not justify machines that take longer to start.
func TestWakeFindsAQueue(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		policy autoscale.Policy
		load   func(since time.Duration, e *autoscale.Engine)
		most   int
	}{
		"the usual targets": {
			"a queue of 100, which is gone after a minute", usual(0, 20),
			func(since time.Duration, e *autoscale.Engine) {
				if since < time.Minute {
					e.Running, e.Waiting, e.KVCacheUse = 60, 100*(1-since.Minutes()), 0.95
				}
			}, 1,
		},
		"requests in flight": {
			"they run at once on the one replica, and no others come", policy(0, 20),
			func(since time.Duration, e *autoscale.Engine) {
				if since < time.Minute {
					e.Running = 100
				}
			}, 1,
		},
		"a burst between two looks": {
			"counters of the first minute see the requests that waited as arrivals", policy(0, 20),
			func(since time.Duration, e *autoscale.Engine) {
				e.Arrivals, e.ServiceTime = 0.1, 20
				if since == 15*time.Second {
					e.Running, e.Arrivals = 100, 7
				}
			}, 1,
		},
		"a queue that lasts, with known rates": {
			"four requests arrive each second and one is answered: 0.5 in flight on a second of service need four replicas", usual(0, 20),
			func(since time.Duration, e *autoscale.Engine) {
				e.Running, e.Waiting, e.Arrivals, e.ServiceTime = 30, min(10+3*since.Seconds(), 200), 4, 30
			}, 6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for minute, got := range woken(c.policy, 10, c.load) {
				if got > c.most {
					t.Errorf("%s: %d replicas in minute %d, want at most %d", c.reason, got, minute+1, c.most)
					break
				}
			}
		})
	}
}

// TestLastingQueueAddsReplicas: a queue that still exists after two minutes counts in full, even without rates. With
// known rates it counts sooner.
func TestLastingQueueAddsReplicas(t *testing.T) {
	raw := woken(usual(0, 4), 6, func(_ time.Duration, e *autoscale.Engine) { e.Running, e.Waiting = 4, 30 })
	if raw[0] != 1 || raw[1] != 1 || raw[3] != 4 {
		t.Errorf("without rates: %v replicas by minute, want 1 for two minutes, and 4 in the fourth", raw)
	}
	known := woken(policy(0, 9), 6, func(_ time.Duration, e *autoscale.Engine) {
		e.Running, e.Waiting, e.Arrivals, e.ServiceTime = 10, 30, 2, 15
	})
	if known[1] < 2 || known[5] < 3 || known[5] > 5 { // 2/s × 15 s are 30 in flight; the target is 10
		t.Errorf("with rates: %v replicas by minute, want more than one in the second, and 3 to 5 in the end", known)
	}
}

// TestRestartFindsAQueue: after a restart, the age of the queue is unknown.
func TestRestartFindsAQueue(t *testing.T) {
	s := autoscale.Signals{Desired: 2, Engines: engines(2, 4), StartUps: []time.Duration{5 * time.Minute}}
	for i := range s.Engines {
		s.Engines[i].Waiting = 50
	}
	for _, p := range []autoscale.Policy{usual(1, 20), policy(1, 20)} {
		if got := watched(p, s, 0); got.Replicas != 2 {
			t.Errorf("%s: %d replicas at the first look: %s", p.Targets[0].Metric, got.Replicas, got.Message)
		}
		if got := watched(p, s, 5*time.Minute); got.Replicas < 10 {
			t.Errorf("%s: %d replicas after five minutes of the same queue: %s", p.Targets[0].Metric, got.Replicas, got.Message)
		}
	}
}

// TestQueueOfASteadySet: a set that was watched for some time suddenly has a queue.
func TestQueueOfASteadySet(t *testing.T) {
	p, state := usual(1, 30), autoscale.State{}
	for name, c := range map[string]struct {
		arrivals, service float64
		least, most       int
	}{
		"gone within a lead time": {0.5, 8, 2, 2},  // two engines answer 2.5 requests per second: 100 are gone in 50 s
		"grows":                   {12, 8, 4, 12},  // ten replicas answer as many as arrive
		"without rates":           {-1, -1, 4, 30}, // the queue counts in full, averaged over minutes
	} {
		t.Run(name, func(t *testing.T) {
			var got autoscale.Decision
			for i := range 60 {
				s := autoscale.Signals{
					Now: start.Add(time.Duration(i) * 15 * time.Second), Desired: 2, Engines: engines(2, 10), StartUps: []time.Duration{5 * time.Minute},
				}
				for e := range s.Engines {
					s.Engines[e].KVCacheUse = 0.5
					if c.arrivals >= 0 {
						s.Engines[e].Arrivals, s.Engines[e].ServiceTime = 0.5, c.service
					}
					if i >= 50 {
						s.Engines[e].Waiting = 50
						if c.arrivals >= 0 {
							s.Engines[e].Arrivals = c.arrivals / 2
						}
					}
				}
				got, state = autoscale.Decide(p, s, state)
			}
			if got.Replicas < c.least || got.Replicas > c.most {
				t.Errorf("%d replicas, want %d to %d: %s", got.Replicas, c.least, c.most, got.Message)
			}
		})
	}
}

// TestNoiseRequestsNoReplicas: requests arrive at random around a constant demand of 3.5 replicas. Trends in them come
// and go. A replica requested for such a trend would be withdrawn before it is ready.
func TestNoiseRequestsNoReplicas(t *testing.T) {
	changes := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		p, state, desired, load := policy(1, 50), autoscale.State{}, 4, 35.0
		var last time.Time
		for i := range 400 {
			load += (35-load)/4 + r.NormFloat64()*1.2 // an answer takes about four polls
			s := autoscale.Signals{
				Now: start.Add(time.Duration(i) * 15 * time.Second), Desired: desired, Engines: engines(4, load/4),
				StartUps: []time.Duration{10 * time.Minute},
			}
			var got autoscale.Decision
			got, state = autoscale.Decide(p, s, state)
			switch {
			case got.Replicas > desired:
				last = s.Now
				changes++
			case got.Replicas < desired && s.Now.Sub(last) < 2*time.Minute:
				t.Errorf("seed %d, look %d: %d replicas become %d, %s after one was requested", seed, i, desired, got.Replicas, s.Now.Sub(last))
			}
			desired = got.Replicas
		}
	}
	if changes > 20 {
		t.Errorf("replicas were requested %d times in %d hours of a constant demand", changes, 20*400/240)
	}
}

// TestPriceUnknown: no replica has a plan, so the price of a replica is unknown.
func TestPriceUnknown(t *testing.T) {
	p := policy(3, 9)
	p.MaxHourlyPrice = 10
	for name, c := range map[string]struct {
		reason string
		s      autoscale.Signals
		want   int
	}{
		"no replica":     {"one starts, and its plan has the price", autoscale.Signals{Desired: 0}, 1},
		"some replicas":  {"none is added, and none goes", autoscale.Signals{Desired: 2, Engines: engines(2, 50)}, 2},
		"without price":  {"a plan without a price has no limit", autoscale.Signals{Desired: 2, Engines: engines(2, 50), IsPlanned: true}, 9},
		"a known price":  {"$10 pay for three of $3", autoscale.Signals{Desired: 2, Engines: engines(2, 50), ReplicaPrice: 3, IsPlanned: true}, 3},
		"more than paid": {"the price became known", autoscale.Signals{Desired: 5, Engines: engines(5, 50), ReplicaPrice: 3, IsPlanned: true}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Now = start
			if got, _ := autoscale.Decide(p, c.s, autoscale.State{}); got.Replicas != c.want {
				t.Errorf("%s: %d replicas, want %d: %s", c.reason, got.Replicas, c.want, got.Message)
			}
		})
	}
}
