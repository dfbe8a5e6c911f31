// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"slices"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// crashing simulates a set that was woken. Its first replica is ready after five minutes, and crashes a minute later, as
// after each further start. It then counts as possibly busy for two minutes, and is ready again three minutes later. The
// function returns the number of replicas at the end of each round.
func crashing(p autoscale.Policy, rounds int, load func(round int, e *autoscale.Engine), price float64) []int {
	const up, lost, again = time.Minute, 3 * time.Minute, 6 * time.Minute
	state, desired := autoscale.State{}, 1
	var out []int
	for round := range rounds + 1 {
		for since := time.Duration(0); since < again; since += 15 * time.Second {
			s := autoscale.Signals{
				Now: start.Add(time.Duration(round)*again + since), Desired: desired, Woken: start, StartUps: []time.Duration{5 * time.Minute},
				ReplicaPrice: price, IsPlanned: true,
			}
			switch {
			case round == 0:
			case since < up:
				s.Engines = engines(1, 0)
				load(round, &s.Engines[0])
			case since < lost:
				s.Engines = []autoscale.Engine{autoscale.Unknown()}
			}
			var got autoscale.Decision
			got, state = autoscale.Decide(p, s, state)
			desired = got.Replicas
		}
		if round > 0 {
			out = append(out, desired)
		}
	}
	return out
}

// TestCrashesUnderLoad: a set whose only replica crashes under its load grows, although each start looks like a wake.
func TestCrashesUnderLoad(t *testing.T) {
	queue := func(_ int, e *autoscale.Engine) { e.Running, e.Waiting, e.KVCacheUse = 60, 100, 0.98 }
	priced := usual(1, 9)
	priced.MaxHourlyPrice = 4
	latency := policy(1, 9)
	latency.Targets = []autoscale.Target{{Metric: autoscale.TimeToFirstToken, Value: 2}}
	for _, c := range []struct {
		reason string
		policy autoscale.Policy
		load   func(round int, e *autoscale.Engine)
		least  int
		most   int
	}{
		{"a queue of unknown age", usual(1, 9), queue, 6, 6},
		{"requests in flight", policy(1, 9), queue, 6, 6},
		{"late first tokens", latency, func(_ int, e *autoscale.Engine) { e.Running, e.TimeToFirstToken = 5, 9 }, 2, 7},
		{"the maximum", usual(1, 2), queue, 2, 2},
		{"the limit of the price", priced, queue, 2, 2},
		{"crashes of an idle replica have another reason", usual(1, 9), func(int, *autoscale.Engine) {}, 1, 1},
		{"crashes at a load that one replica can carry", usual(1, 9), func(_ int, e *autoscale.Engine) { e.Running, e.KVCacheUse = 2, 0.3 }, 1, 1},
		{"a queue at a start after a crash of another reason", usual(1, 9), func(round int, e *autoscale.Engine) {
			if round == 2 {
				queue(2, e)
			}
		}, 1, 1},
		{"a load that is over after the first crash", usual(1, 9), func(round int, e *autoscale.Engine) {
			if round == 1 {
				queue(1, e)
			}
		}, 1, 1},
	} {
		t.Run(c.reason, func(t *testing.T) {
			got := crashing(c.policy, 6, c.load, 2)
			if last := got[len(got)-1]; last < c.least || last > c.most {
				t.Errorf("%v replicas after each crash, want %d to %d in the end", got, c.least, c.most)
			}
			if slices.Max(got) > c.most {
				t.Errorf("%v replicas after each crash, want at most %d", got, c.most)
			}
			if got[0] != 1 {
				t.Errorf("%v replicas after each crash: the first start finds a queue of unknown age", got)
			}
			for i := 1; i < len(got); i++ {
				if got[i] > got[i-1]+1 {
					t.Errorf("%v replicas after each crash: more than one is added for a crash", got)
				}
			}
		})
	}
}

// TestOldCrash: what crashed hours ago does not change how a wake counts.
func TestOldCrash(t *testing.T) {
	for age, want := range map[time.Duration]int{time.Minute: 2, 2 * time.Hour: 1, -time.Minute: 1} {
		state := autoscale.State{Since: start.Add(-3 * time.Hour), Lost: autoscale.Loss{At: start.Add(-age), Replicas: 1}}
		s := autoscale.Signals{Now: start, Desired: 1, Engines: engines(1, 0)}
		s.Engines[0].Running, s.Engines[0].Waiting, s.Engines[0].KVCacheUse = 60, 100, 0.98
		if got, _ := autoscale.Decide(usual(1, 9), s, state); got.Replicas != want {
			t.Errorf("%s after a crash, there are %d replicas, want %d: %s", age, got.Replicas, want, got.Message)
		}
	}
}
