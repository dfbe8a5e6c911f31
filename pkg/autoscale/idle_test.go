// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"math"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// idleCost simulates one replica that serves a request, has none for a gap, and then has another one. It returns the paid
// time after the first request: the idle time, and a start if the replica was deleted.
func idleCost(window, startUp, gap time.Duration) time.Duration {
	p := policy(0, 1)
	p.IdleAfter = window
	state, ready := autoscale.State{}, start.Add(-window)
	decide := func(at time.Time, desired int, busy float64) int {
		s := autoscale.Signals{Now: at, Desired: desired, StartUps: []time.Duration{startUp}}
		if desired > 0 {
			s.Engines = engines(1, busy)
		}
		var got autoscale.Decision
		got, state = autoscale.Decide(p, s, state)
		return got.Replicas
	}
	for at := ready; !at.After(start); at = at.Add(15 * time.Second) { // the window is over, and requests run until now
		decide(at, 1, 1)
	}
	for idle := 15 * time.Second; idle < gap; idle += 15 * time.Second {
		if decide(start.Add(idle), 1, 0) == 0 {
			return idle + startUp
		}
	}
	return gap
}

// TestIdleWindows: an idle window W of the length of a start S costs at most twice the dollars of a clairvoyant, who
// deletes the replica at once or never. Other windows cost up to (W + S) / min(W, S) times as much, if the next request
// comes right after the deletion; here it comes 30 s after it.
func TestIdleWindows(t *testing.T) {
	for _, c := range []struct {
		window, startUp time.Duration
		want            float64
	}{
		{5 * time.Minute, 5 * time.Minute, 2},
		{20 * time.Minute, 20 * time.Minute, 2},
		{10 * time.Minute, 5 * time.Minute, 3},
		{10 * time.Minute, 10 * time.Minute, 2},
		{time.Minute, 5 * time.Minute, 4},
		{time.Hour, 5 * time.Minute, 13},
	} {
		worst := 0.0
		for _, gap := range []time.Duration{30 * time.Second, c.window / 2, c.window, c.window + 30*time.Second, c.window + c.startUp, 2 * c.window} {
			worst = math.Max(worst, float64(idleCost(c.window, c.startUp, gap))/float64(min(gap, c.startUp)))
		}
		if math.Abs(worst-c.want) > 0.01 {
			t.Errorf("a window of %s with starts of %s costs up to %.2f times the least, want %.2f", c.window, c.startUp, worst, c.want)
		}
	}
}
