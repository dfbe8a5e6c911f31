// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// randomPolicy returns a random policy.
func randomPolicy(r *rand.Rand) autoscale.Policy {
	p := autoscale.Policy{
		Min: r.IntN(4), LeadPercentile: 1 + r.IntN(100), IdleAfter: time.Duration(1+r.IntN(20)) * time.Minute,
		Up:   autoscale.Pace{Window: time.Duration(r.IntN(3)) * time.Minute, Most: r.IntN(3), Period: time.Minute},
		Down: autoscale.Pace{Window: time.Duration(r.IntN(10)-1) * time.Minute, Most: r.IntN(3), Period: time.Minute},
	}
	p.Max = p.Min + r.IntN(20)
	if r.IntN(2) == 0 {
		p.MaxHourlyPrice = float64(1 + r.IntN(40))
	}
	for _, metric := range autoscale.Metrics() {
		if r.IntN(3) == 0 {
			p.Targets = append(p.Targets, autoscale.Target{Metric: metric, Value: []float64{0.7, 2, 30}[r.IntN(3)]})
		}
	}
	if r.IntN(3) == 0 {
		low, high := r.IntN(6), 6+r.IntN(6)
		cron, err := autoscale.ParseCron("*/7 * * * *")
		if err != nil {
			panic(err)
		}
		p.Schedules = []autoscale.Schedule{{Name: "rush", Cron: cron, Duration: 3 * time.Minute, Min: &low, Max: &high}}
	}
	return p
}

func randomValue(r *rand.Rand) float64 {
	switch r.IntN(12) {
	case 0:
		return math.NaN()
	case 1:
		return math.Inf(1 - 2*r.IntN(2))
	case 2:
		return -1
	case 3:
		return 0
	case 4:
		return math.MaxFloat64
	default:
		return r.Float64() * 100
	}
}

func randomEngine(r *rand.Rand) autoscale.Engine {
	return autoscale.Engine{
		Running: randomValue(r), Waiting: randomValue(r), WaitingTokens: randomValue(r), KVCacheUse: randomValue(r),
		Arrivals: randomValue(r), ServiceTime: randomValue(r), TimeToFirstToken: randomValue(r), TimePerOutputToken: randomValue(r),
	}
}

// TestBounds makes decisions for random signals, and checks the invariants of each.
func TestBounds(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		p, state, desired, now := randomPolicy(r), autoscale.State{}, r.IntN(12), start
		for range 60 {
			now = now.Add(time.Duration(r.IntN(90)-5) * time.Second) // clocks may go back
			s := autoscale.Signals{Now: now, Desired: desired, ReplicaPrice: float64(r.IntN(5)), Held: max(0, r.IntN(5)-3), IsPlanned: r.IntN(2) == 0}
			for range r.IntN(desired + 2) {
				s.Engines = append(s.Engines, randomEngine(r))
			}
			if r.IntN(4) == 0 {
				s.Woken = now.Add(-time.Duration(r.IntN(1000)) * time.Second)
			}
			var got autoscale.Decision
			got, state = autoscale.Decide(p, s, state)
			check(t, seed, &p, &s, got)
			if len(state.Samples) > 512 || len(state.Changes) > 128 {
				t.Fatalf("seed %d: the memory grows: %d samples, %d changes", seed, len(state.Samples), len(state.Changes))
			}
			desired = got.Replicas
		}
	}
}

func check(t *testing.T, seed uint64, p *autoscale.Policy, s *autoscale.Signals, got autoscale.Decision) {
	t.Helper()
	most := p.Max
	if len(p.Schedules) > 0 {
		most = max(most, *p.Schedules[0].Max)
	}
	if got.Replicas < 0 || got.Replicas > most {
		t.Fatalf("seed %d: %d replicas with a maximum of %d: %s", seed, got.Replicas, most, got.Message)
	}
	if got.Reason == "" || got.Message == "" {
		t.Fatalf("seed %d: a decision without a reason: %+v", seed, got)
	}
	isCapped := p.MaxHourlyPrice > 0 && s.ReplicaPrice > 0
	if isCapped && float64(got.Replicas)*s.ReplicaPrice > p.MaxHourlyPrice+1e-6 {
		t.Fatalf("seed %d: %d replicas of $%v cost more than $%v", seed, got.Replicas, s.ReplicaPrice, p.MaxHourlyPrice)
	}
	isUnknown := p.MaxHourlyPrice > 0 && !(s.ReplicaPrice > 0) && !s.IsPlanned
	if isUnknown && got.Replicas > max(1, s.Desired) {
		t.Fatalf("seed %d: %d replicas become %d without a known price", seed, s.Desired, got.Replicas)
	}
	if len(p.Schedules) == 0 && !isCapped && !isUnknown && got.Replicas < p.Min {
		t.Fatalf("seed %d: %d replicas with a minimum of %d", seed, got.Replicas, p.Min)
	}
	mayBeBusy := s.Held > 0
	for i := range s.Engines {
		mayBeBusy = mayBeBusy || s.Engines[i].Running+s.Engines[i].Waiting != 0 || s.Engines[i].Running < 0 || s.Engines[i].Waiting < 0
	}
	if s.Desired > 0 && mayBeBusy && got.Replicas == 0 && !isCapped && len(p.Schedules) == 0 && p.Max > 0 {
		t.Fatalf("seed %d: zero replicas while requests may be in flight: %+v", seed, got)
	}
}

// TestAbsentSignalsLetNothingGo: hours without an answer from any engine remove no replica.
func TestAbsentSignalsLetNothingGo(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := randomPolicy(r)
		p.Schedules, p.MaxHourlyPrice, p.Min, p.Max = nil, 0, 0, 50
		ready := 1 + r.IntN(8)
		s := autoscale.Signals{Desired: ready}
		for range ready {
			s.Engines = append(s.Engines, autoscale.Unknown())
		}
		if got := watched(p, s, 3*time.Hour); got.Replicas != ready {
			t.Fatalf("seed %d: %d replicas became %d: %s", seed, ready, got.Replicas, got.Message)
		}
	}
}

// TestMoreDemandNeverMeansFewer compares two decisions from the same state: more requests on each engine never mean
// fewer replicas.
func TestMoreDemandNeverMeansFewer(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		p, state, desired := randomPolicy(r), autoscale.State{}, 1+r.IntN(8)
		for i := range 40 {
			s := autoscale.Signals{Now: start.Add(time.Duration(i) * 20 * time.Second), Desired: desired, ReplicaPrice: 2}
			for range 1 + r.IntN(desired) {
				s.Engines = append(s.Engines, engines(1, r.Float64()*40)...)
			}
			more := s
			more.Engines = nil
			for _, e := range s.Engines {
				e.Running, e.Waiting, e.WaitingTokens, e.KVCacheUse = e.Running+r.Float64()*20, r.Float64()*20, r.Float64()*1000, e.KVCacheUse+r.Float64()
				more.Engines = append(more.Engines, e)
			}
			a, next := autoscale.Decide(p, s, state)
			b, _ := autoscale.Decide(p, more, state)
			if b.Replicas < a.Replicas {
				t.Fatalf("seed %d, step %d: more demand, and %d replicas in place of %d:\n%s\n%s", seed, i, b.Replicas, a.Replicas, a.Message, b.Message)
			}
			state, desired = next, max(1, a.Replicas)
		}
	}
}

// TestConverges simulates the whole loop: a constant demand is spread over the replicas, which take some time to start.
// The number of replicas must reach the demand and stay there.
func TestConverges(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := policy(1, 40)
		demand, startUp := r.Float64()*300, time.Duration(1+r.IntN(10))*time.Minute
		ready, pending := 1+r.IntN(30), []time.Time(nil)
		desired := ready
		var state autoscale.State
		var last autoscale.Decision
		changed := start
		for at := start; at.Before(start.Add(3 * time.Hour)); at = at.Add(15 * time.Second) {
			for len(pending) > 0 && !pending[0].After(at) {
				pending, ready = pending[1:], ready+1
			}
			s := autoscale.Signals{Now: at, Desired: desired, Engines: engines(ready, demand/float64(ready)), StartUps: []time.Duration{startUp}}
			last, state = autoscale.Decide(p, s, state)
			if last.Replicas != desired {
				changed = at
			}
			for ; desired < last.Replicas; desired++ {
				pending = append(pending, at.Add(startUp))
			}
			for ; desired > last.Replicas; desired-- {
				if len(pending) > 0 {
					pending = pending[:len(pending)-1]
				} else {
					ready--
				}
			}
		}
		least := min(40, max(1, int(math.Ceil(demand/10*0.9))))
		most := min(40, int(math.Ceil(demand/10))+1)
		if desired < least || desired > most {
			t.Errorf("seed %d: a demand of %.1f replicas ends with %d: %s", seed, demand/10, desired, last.Message)
		}
		if changed.After(start.Add(2 * time.Hour)) {
			t.Errorf("seed %d: the number still changes after two hours of a constant demand of %.2f: %s", seed, demand/10, last.Message)
		}
	}
}

// FuzzDecide makes decisions for arbitrary signals.
func FuzzDecide(f *testing.F) {
	f.Add(uint64(1), 1.0, 2.0, 0.5, 1.0, int64(15), 3)
	f.Add(uint64(7), math.NaN(), math.Inf(1), -1.0, 0.0, int64(-3600), 0)
	f.Fuzz(func(t *testing.T, seed uint64, running, waiting, use, late float64, seconds int64, desired int) {
		r := rand.New(rand.NewPCG(seed, 5))
		p, state := randomPolicy(r), autoscale.State{}
		desired = min(max(desired, -5), 1000)
		e := autoscale.Engine{
			Running: running, Waiting: waiting, WaitingTokens: waiting * 100, KVCacheUse: use, TimeToFirstToken: late, TimePerOutputToken: late / 10,
			Arrivals: waiting, ServiceTime: late,
		}
		for i := range 10 {
			s := autoscale.Signals{
				Now: start.Add(time.Duration(i) * time.Duration(min(max(seconds, -1e6), 1e6)) * time.Second), Desired: desired,
				Engines: []autoscale.Engine{e, e}, StartUps: []time.Duration{time.Duration(seconds)}, ReplicaPrice: use,
			}
			var got autoscale.Decision
			got, state = autoscale.Decide(p, s, state)
			check(t, seed, &p, &s, got)
			desired = got.Replicas
		}
	})
}
