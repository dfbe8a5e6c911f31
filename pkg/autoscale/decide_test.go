// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

var start = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC) // a Monday

// engines returns n engines with this many running requests each, and none waiting.
func engines(n int, running float64) []autoscale.Engine {
	out := make([]autoscale.Engine, n)
	for i := range out {
		out[i] = autoscale.Unknown()
		out[i].Running, out[i].Waiting, out[i].WaitingTokens, out[i].KVCacheUse = running, 0, 0, running/100
	}
	return out
}

func policy(least, most int) autoscale.Policy {
	return autoscale.Policy{
		Min: least, Max: most, Targets: []autoscale.Target{{Metric: autoscale.RequestsInFlight, Value: 10}},
		Down: autoscale.Pace{Window: autoscale.FollowsLead},
	}
}

// watched repeats decisions with the same signals every 15 seconds, and returns the last one. The number of replicas
// stays the same.
func watched(p autoscale.Policy, s autoscale.Signals, length time.Duration) autoscale.Decision {
	var state autoscale.State
	var out autoscale.Decision
	for at := time.Duration(0); at <= length; at += 15 * time.Second {
		s.Now = start.Add(at)
		out, state = autoscale.Decide(p, s, state)
	}
	return out
}

func TestDecide(t *testing.T) {
	lead := []time.Duration{5 * time.Minute}
	nan := math.NaN()
	type want struct {
		Replicas int
		Reason   autoscale.Reason
	}
	for name, c := range map[string]struct {
		reason  string
		policy  autoscale.Policy
		signals autoscale.Signals
		watch   time.Duration
		want    want
	}{
		"steady": {
			reason: "three replicas at their target stay",
			policy: policy(1, 9), signals: autoscale.Signals{Desired: 3, Engines: engines(3, 10)}, watch: time.Hour,
			want: want{3, autoscale.Steady},
		},
		"within the tolerance": {
			reason: "a demand of 3.08 replicas is three",
			policy: policy(1, 9), signals: autoscale.Signals{Desired: 3, Engines: engines(3, 10.3)},
			want: want{3, autoscale.Steady},
		},
		"up": {
			reason: "twice the target needs twice the replicas, at once",
			policy: policy(1, 9), signals: autoscale.Signals{Desired: 3, Engines: engines(3, 20)},
			want: want{6, autoscale.DemandRose},
		},
		"up, while replicas start": {
			reason: "replicas that start count: the sum of the demand does not ask for them twice",
			policy: policy(1, 9), signals: autoscale.Signals{Desired: 6, Engines: engines(3, 20)},
			want: want{6, autoscale.Steady},
		},
		"up to the maximum": {
			reason: "the maximum holds",
			policy: policy(1, 4), signals: autoscale.Signals{Desired: 3, Engines: engines(3, 90)},
			want: want{4, autoscale.AtMaximum},
		},
		"up to the price": {
			reason:  "$10 pay for three replicas of $3",
			policy:  func() autoscale.Policy { p := policy(1, 9); p.MaxHourlyPrice = 10; return p }(),
			signals: autoscale.Signals{Desired: 2, Engines: engines(2, 90), ReplicaPrice: 3},
			want:    want{3, autoscale.AtPriceCap},
		},
		"price below the minimum": {
			reason:  "money beats the minimum",
			policy:  func() autoscale.Policy { p := policy(4, 9); p.MaxHourlyPrice = 7; return p }(),
			signals: autoscale.Signals{Desired: 4, Engines: engines(4, 10), ReplicaPrice: 3},
			want:    want{2, autoscale.AtPriceCap},
		},
		"paced up": {
			reason: "one replica a minute was asked for",
			policy: func() autoscale.Policy {
				p := policy(1, 9)
				p.Up = autoscale.Pace{Most: 1, Period: time.Minute}
				return p
			}(),
			signals: autoscale.Signals{Desired: 3, Engines: engines(3, 30)},
			want:    want{4, autoscale.Paced},
		},
		"window up": {
			reason:  "the demand agreed for a minute",
			policy:  func() autoscale.Policy { p := policy(1, 9); p.Up.Window = time.Minute; return p }(),
			signals: autoscale.Signals{Desired: 3, Engines: engines(3, 30)}, watch: time.Minute,
			want: want{9, autoscale.DemandRose},
		},
		"window up, too early": {
			reason:  "the demand must agree for a minute, and the first look is not a minute old",
			policy:  func() autoscale.Policy { p := policy(1, 9); p.Up.Window = time.Minute; return p }(),
			signals: autoscale.Signals{Desired: 3, Engines: engines(3, 30)}, watch: 45 * time.Second,
			want: want{3, autoscale.Steady},
		},
		"down too early": {
			reason: "a controller that has just started lets nothing go",
			policy: policy(1, 9), signals: autoscale.Signals{Desired: 3, Engines: engines(3, 2), StartUps: lead}, watch: time.Minute,
			want: want{3, autoscale.Settling},
		},
		"down": {
			reason: "after the lead time, six requests need one replica",
			policy: policy(1, 9), signals: autoscale.Signals{Desired: 3, Engines: engines(3, 2), StartUps: lead}, watch: 6 * time.Minute,
			want: want{1, autoscale.DemandFell},
		},
		"down to the minimum": {
			reason: "the minimum holds",
			policy: policy(2, 9), signals: autoscale.Signals{Desired: 3, Engines: engines(3, 1), StartUps: lead}, watch: 6 * time.Minute,
			want: want{2, autoscale.AtMinimum},
		},
		"withdrawn": {
			reason: "six were requested, three answer, and three are enough: nobody waits for the window, but a moment is not enough",
			policy: policy(1, 9), signals: autoscale.Signals{Desired: 6, Engines: engines(3, 10), StartUps: lead}, watch: 2 * time.Minute,
			want: want{3, autoscale.Withdrawn},
		},
		"no signals": {
			reason: "engines that do not answer let nothing go",
			policy: policy(0, 9), signals: autoscale.Signals{Desired: 2, Engines: []autoscale.Engine{autoscale.Unknown(), autoscale.Unknown()}},
			watch: time.Hour, want: want{2, autoscale.NoSignals},
		},
		"one without signals": {
			reason: "it counts as full: two of three are idle, and the three stay as long as it may be busy",
			policy: policy(0, 9), signals: autoscale.Signals{Desired: 3, Engines: append(engines(2, 10), autoscale.Unknown())},
			watch: time.Hour, want: want{3, autoscale.Steady},
		},
		"senseless signals": {
			reason: "negative and infinite numbers are unknown",
			policy: policy(0, 9), signals: autoscale.Signals{Desired: 2, Engines: []autoscale.Engine{
				{Running: -1, Waiting: 0, Arrivals: nan, ServiceTime: nan}, {Running: math.Inf(1), Arrivals: nan, ServiceTime: nan},
			}},
			watch: time.Hour, want: want{2, autoscale.NoSignals},
		},
		"idle": {
			reason: "nothing was in flight for ten minutes, and the minimum is zero",
			policy: policy(0, 9), signals: autoscale.Signals{Desired: 1, Engines: engines(1, 0), StartUps: lead}, watch: 11 * time.Minute,
			want: want{0, autoscale.Idle},
		},
		"idle, with a minimum": {
			reason: "the last replica stays",
			policy: policy(1, 9), signals: autoscale.Signals{Desired: 1, Engines: engines(1, 0), StartUps: lead}, watch: time.Hour,
			want: want{1, autoscale.Steady},
		},
		"one request": {
			reason: "a request in flight keeps the last replica",
			policy: policy(0, 9), signals: autoscale.Signals{Desired: 1, Engines: engines(1, 0.5), StartUps: lead}, watch: time.Hour,
			want: want{1, autoscale.Steady},
		},
		"at zero": {
			reason: "nothing waits", policy: policy(0, 9), signals: autoscale.Signals{}, want: want{0, autoscale.AtZero},
		},
		"woken": {
			reason: "somebody asked a minute ago",
			policy: policy(0, 9), signals: autoscale.Signals{Woken: start.Add(-time.Minute)}, want: want{1, autoscale.Woken},
		},
		"woken long ago": {
			reason: "an old wish wakes nothing",
			policy: policy(0, 9), signals: autoscale.Signals{Woken: start.Add(-time.Hour)}, want: want{0, autoscale.AtZero},
		},
		"starting": {
			reason: "a replica that starts after a wish stays",
			policy: policy(0, 9), signals: autoscale.Signals{Desired: 1, Woken: start, StartUps: lead}, watch: 12 * time.Minute,
			want: want{1, autoscale.Starting},
		},
		"late": {
			reason: "first tokens take twice their limit: half as many replicas again",
			policy: autoscale.Policy{Min: 1, Max: 9, Targets: []autoscale.Target{{Metric: autoscale.TimeToFirstToken, Value: 1}}},
			signals: autoscale.Signals{Desired: 4, Engines: []autoscale.Engine{
				{TimeToFirstToken: 2}, {TimeToFirstToken: 2}, {TimeToFirstToken: 2}, {TimeToFirstToken: 2},
			}},
			want: want{6, autoscale.DemandRose},
		},
		"no target": {
			reason: "a policy without a target changes nothing",
			policy: autoscale.Policy{Min: 1, Max: 9}, signals: autoscale.Signals{Desired: 4, Engines: engines(4, 90)},
			want: want{4, autoscale.NoSignals},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.signals.Now = start
			got := watched(c.policy, c.signals, c.watch)
			if diff := cmp.Diff(c.want, want{got.Replicas, got.Reason}); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%s", c.reason, diff, got.Message)
			}
		})
	}
}

func TestMessages(t *testing.T) {
	got := watched(policy(1, 9), autoscale.Signals{Desired: 3, Engines: engines(3, 20)}, 0)
	want := "RequestsInFlight is 20.0 for each replica, with a target of 10.0: the demand is 6.0 replicas"
	if got.Message != want {
		t.Errorf("got %q, want %q", got.Message, want)
	}
}

// TestWaitingRequestsAreThePast: a queue does not need a replica for each of its requests, because they will have
// answers before another replica starts.
func TestWaitingRequestsAreThePast(t *testing.T) {
	s := autoscale.Signals{Now: start, Desired: 2, Engines: engines(2, 10), StartUps: []time.Duration{5 * time.Minute}}
	for i := range s.Engines {
		s.Engines[i].Waiting, s.Engines[i].Arrivals, s.Engines[i].ServiceTime = 100, 1, 10
	}
	got, _ := autoscale.Decide(policy(1, 50), s, autoscale.State{})
	if got.Replicas != 3 { // 2 × (10 running + 100 × 10 s / 300 s) / 10
		t.Errorf("got %d replicas: %s", got.Replicas, got.Message)
	}
}

// TestTrend: a steady rise requests the replicas that are needed after a lead time.
func TestTrend(t *testing.T) {
	p, state := policy(1, 50), autoscale.State{}
	var got autoscale.Decision
	for i := range 21 { // 10 to 30 requests on each of 4 replicas, within five minutes
		s := autoscale.Signals{
			Now: start.Add(time.Duration(i) * 15 * time.Second), Desired: 50, Engines: engines(4, 10+float64(i)),
			StartUps: []time.Duration{5 * time.Minute},
		}
		got, state = autoscale.Decide(p, s, state)
	}
	if got.Need != 12 || got.Expected < 18 || got.Expected > 21 { // 12 now, and 8 more in five minutes
		t.Errorf("the need is %.1f and %.1f are expected, want 12 and about 20: %s", got.Need, got.Expected, got.Message)
	}
}

// TestRestartWithdrawsNothingAtOnce: a single poll is not enough to withdraw replicas that are starting.
func TestRestartWithdrawsNothingAtOnce(t *testing.T) {
	s := autoscale.Signals{Desired: 5, Engines: engines(2, 1)}
	if got := watched(policy(1, 9), s, time.Minute); got.Replicas != 5 {
		t.Errorf("%d replicas after a minute: %s", got.Replicas, got.Message)
	}
	if got := watched(policy(1, 9), s, 3*time.Minute); got.Replicas != 2 || got.Reason != autoscale.Withdrawn {
		t.Errorf("%d replicas after three minutes: %s", got.Replicas, got.Message)
	}
}

// TestFirstReplicaWaitsForItsRequest: idleAfter begins when the first replica is ready.
func TestFirstReplicaWaitsForItsRequest(t *testing.T) {
	p, state, replicas := policy(0, 9), autoscale.State{}, 0
	p.IdleAfter = time.Second // counts as a minute, the shortest IdleAfter
	var zeroAt time.Duration
	for at := time.Duration(0); at < 20*time.Minute; at += 15 * time.Second {
		s := autoscale.Signals{Now: start.Add(at), Desired: replicas, Woken: start, StartUps: []time.Duration{5 * time.Minute}}
		if at >= 5*time.Minute && replicas > 0 {
			s.Engines = engines(replicas, 0)
		}
		var got autoscale.Decision
		got, state = autoscale.Decide(p, s, state)
		if replicas > 0 && got.Replicas == 0 {
			zeroAt = at
		}
		if replicas == 0 && got.Replicas > 0 && at > 0 {
			t.Errorf("woken again after %s, by the same wake", at)
		}
		replicas = got.Replicas
	}
	if zeroAt != 6*time.Minute {
		t.Errorf("at zero after %s, want a minute after the first replica was ready", zeroAt)
	}
}

// TestIdleEnginesHaveNoTimes: a policy with only a latency also removes idle replicas.
func TestIdleEnginesHaveNoTimes(t *testing.T) {
	p := policy(0, 9)
	p.Targets = []autoscale.Target{{Metric: autoscale.TimeToFirstToken, Value: 2}}
	if got := watched(p, autoscale.Signals{Desired: 3, Engines: engines(3, 0)}, time.Hour); got.Replicas != 0 || got.Reason != autoscale.Idle {
		t.Errorf("%d replicas: %s: %s", got.Replicas, got.Reason, got.Message)
	}
	if got := watched(p, autoscale.Signals{Desired: 3, Engines: engines(3, 1)}, time.Hour); got.Replicas != 3 || got.Reason != autoscale.NoSignals {
		t.Errorf("%d replicas with requests: %s: %s", got.Replicas, got.Reason, got.Message)
	}
}

// TestOneSilentEngineLetsNothingGo: with one silent engine, no replica is removed, whatever the others report and
// whatever the targets are.
func TestOneSilentEngineLetsNothingGo(t *testing.T) {
	for _, metric := range autoscale.Metrics() {
		p, state := policy(0, 9), autoscale.State{}
		p.Targets = []autoscale.Target{{Metric: metric, Value: 0.9}}
		for i := range 400 {
			s := autoscale.Signals{Now: start.Add(time.Duration(i) * 15 * time.Second), Desired: 3, Engines: engines(3, 0)}
			for e := range s.Engines {
				s.Engines[e].TimeToFirstToken, s.Engines[e].TimePerOutputToken = 0.01, 0.01
			}
			silent := i%8 == 0
			if silent {
				s.Engines[i%3] = autoscale.Unknown()
			}
			var got autoscale.Decision
			got, state = autoscale.Decide(p, s, state)
			if silent && got.Replicas < 3 {
				t.Fatalf("%s, look %d: %d replicas while an engine is silent: %s", metric, i, got.Replicas, got.Message)
			}
		}
	}
}

// A request of two seconds is rarely in flight at a poll, but its arrival is counted: the set is not idle.
func TestShortRequestsKeepASetAwake(t *testing.T) {
	for name, served := range map[string]func(*autoscale.Engine){
		"arrivals":        func(e *autoscale.Engine) { e.Arrivals = 0.01 },
		"time per token":  func(e *autoscale.Engine) { e.TimePerOutputToken = 0.02 },
		"neither of both": nil,
	} {
		s := autoscale.Signals{Desired: 1, Engines: engines(1, 0)}
		if served != nil {
			served(&s.Engines[0])
		}
		got := watched(policy(0, 3), s, 2*time.Hour)
		if isIdle := got.Reason == autoscale.Idle; isIdle != (served == nil) {
			t.Errorf("%s: %s (%s)", name, got.Reason, got.Message)
		}
	}
}

// The silence of an engine is no demand. If it counted as a trend, it would buy a machine that nobody needs.
func TestSilenceAddsNothing(t *testing.T) {
	p, state := policy(2, 9), autoscale.State{}
	for i := range 200 {
		s := autoscale.Signals{
			Now: start.Add(time.Duration(i) * 15 * time.Second), Desired: 2, Engines: engines(2, 0),
			StartUps: []time.Duration{10 * time.Minute},
		}
		if i >= 40 {
			s.Engines[1] = autoscale.Unknown()
		}
		var got autoscale.Decision
		if got, state = autoscale.Decide(p, s, state); got.Replicas != 2 {
			t.Fatalf("look %d: %d replicas, want 2: %s (%s)", i, got.Replicas, got.Reason, got.Message)
		}
	}
}

// After the last busy replica loses its machine, the set waits for idleAfter and a start-up before it scales to zero.
func TestARestartIsNoIdleness(t *testing.T) {
	p, state := policy(0, 3), autoscale.State{}
	p.IdleAfter = 10 * time.Minute
	s := autoscale.Signals{Desired: 1, StartUps: []time.Duration{20 * time.Minute}}
	var got autoscale.Decision
	for i := range 400 {
		s.Now, s.Engines = start.Add(time.Duration(i)*15*time.Second), nil
		if i < 240 {
			s.Engines = engines(1, 5)
		}
		got, state = autoscale.Decide(p, s, state)
		since := time.Duration(i-239) * 15 * time.Second
		if wait := 30 * time.Minute; since < wait && got.Replicas != 1 || since >= wait+time.Minute && got.Replicas != 0 {
			t.Fatalf("%s after the last request: %d replicas: %s (%s)", since, got.Replicas, got.Reason, got.Message)
		}
	}
}
