// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import "math"

// atRate predicts the speed of a deployment whose requests arrive at random, load.Rate per second on average. speed
// predicts it for a number of requests in flight. atRate takes the smallest number at which requests are finished as
// fast as others arrive. The pace queues if there is no such number, or if the deployment cannot hold the requests of
// busy moments.
func atRate(load Load, speed func(Load) Pace) Pace {
	wanted := load.Rate * float64(load.Output)
	at := func(inFlight int) Pace {
		return speed(Load{Input: load.Input, Output: load.Output, Concurrency: inFlight, Open: true})
	}
	enough := func(p *Pace) bool { return p.OutputTokensPerSecond >= wanted }
	low, high, out := 0, 1, at(1)
	for !enough(&out) {
		if out.TPOT == 0 || out.Queues || high >= mostInFlight {
			out.Queues, out.InFlight = true, math.Inf(1)
			return out
		}
		low, high, out = high, 2*high, at(2*high)
	}
	for high-low > 1 {
		middle := (low + high) / 2
		if p := at(middle); enough(&p) {
			high, out = middle, p
		} else {
			low = middle
		}
	}
	// Little's law.
	out.InFlight = load.Rate * (out.TTFT + out.TPOT*float64(load.Output)) / 1e3
	out.OutputTokensPerSecond = wanted
	busy := at(int(math.Ceil(out.InFlight + busyMoments*math.Sqrt(out.InFlight))))
	out.Queues = out.Queues || busy.Queues
	return out
}

const (
	// mostInFlight exceeds the capacity of any deployment.
	mostInFlight = 1 << 20
	// busyMoments is the number of standard deviations above the mean for which there must be room. The number in
	// flight spreads as in a Poisson process: two deviations cover 98 % of the time.
	busyMoments = 2
)
