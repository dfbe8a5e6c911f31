// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"testing"

	"github.com/modelberth/modelberth/pkg/physics"
)

// Requests at a rate are as fast as the requests of as many clients as Little's law gives, and no request is lost.
func TestRate(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	var before physics.Pace
	for _, rate := range []float64{0.01, 0.1, 0.5, 1, 2} {
		x.load = physics.Load{Input: 1024, Output: 256, Rate: rate}
		got := x.pace(t, s, seventy())
		if got.Queues || math.Abs(got.OutputTokensPerSecond-rate*256) > 1e-6 {
			t.Fatalf("%g requests/s: %+v, want %g tokens/s", rate, got, rate*256)
		}
		if inFlight := rate * (got.TTFT + 256*got.TPOT) / 1e3; math.Abs(got.InFlight-inFlight) > 1e-9 {
			t.Errorf("%g requests/s: %g in flight, times give %g", rate, got.InFlight, inFlight)
		}
		x.load = physics.Load{Input: 1024, Output: 256, Concurrency: int(math.Ceil(got.InFlight)), Open: true}
		if clients := x.pace(t, s, seventy()); clients.TPOT < 0.97*got.TPOT || clients.TPOT > 1.03*got.TPOT {
			t.Errorf("%g requests/s take %g ms per token, %d clients %g", rate, got.TPOT, x.load.Concurrency, clients.TPOT)
		}
		if got.TPOT < before.TPOT || got.InFlight <= before.InFlight {
			t.Errorf("%g requests/s: %+v, fewer had %+v", rate, got, before)
		}
		before = got
	}
}

// If more requests arrive than the deployment finishes, the queue grows forever.
func TestRateBeyondCapacity(t *testing.T) {
	s := newShelf(t)
	for _, tc := range []struct {
		reason string
		rate   float64
		kv     float64
		queues bool
		ends   bool
	}{
		{"room for all", 1, 100, false, true},
		{"the GPUs do not keep up", 1000, 100, true, false},
		{"the mean has room, busy moments have none", 1, 0, true, true},
		{"not one sequence fits", 1, 0.01, true, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			x := ordinary(t, s)
			x.load = physics.Load{Input: 1024, Output: 256, Rate: tc.rate}
			x.kv = 100
			room := x.pace(t, s, seventy())
			if x.kv = tc.kv; tc.kv == 0 {
				// Room for one more request than the mean in flight.
				x.kv = (room.InFlight + 2) * 1280 * 327680 / float64(x.layout.TP) / (1 << 30)
			}
			got := x.pace(t, s, seventy())
			if got.Queues != tc.queues || math.IsInf(got.InFlight, 0) == tc.ends {
				t.Errorf("queues %v with %g in flight, want %v", got.Queues, got.InFlight, tc.queues)
			}
		})
	}
}
