// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"slices"
	"time"
)

// State is the memory between two decisions. The zero value is that of a controller that has just started: it deletes
// no replica until it has watched for a window.
type State struct {
	// Since is the first decision.
	Since   time.Time
	Samples []Sample
	Changes []Change
	Curve   Curve
	// Busy is when something was last in flight, or may have been.
	Busy time.Time
	// HasEngines: an engine was ready at the last decision.
	HasEngines bool
	// Ready is when an engine became ready while no other one was; zero if none did since the memory began.
	Ready time.Time
}

// Sample is the demand at one moment, in replicas.
type Sample struct {
	At time.Time
	// Need as measured, its Level over the last minutes, and what is Expected in a lead time.
	Need, Level, Expected float64
}

// Change is one change of the number of replicas.
type Change struct {
	At time.Time
	By int
}

// Bounds of the memory.
const (
	// mostSamples and mostChanges suffice for the longest window, 24 hours, with a decision every 15 s.
	mostSamples = 6000
	mostChanges = 6000
	// steadying is the time over which the demand is averaged, because requests arrive at random.
	steadying = 2 * time.Minute
	// doubt is how many standard errors of its slope a trend must have.
	doubt = 3
	// mostRepeated is the highest correlation of a sample with the one before it that a trend is judged with.
	mostRepeated = 0.9
)

// remember returns the state with another sample, without what no window needs any more.
func (st State) remember(s Sample, horizon time.Duration) State {
	st.Samples = append(slices.Clone(st.Samples), s)
	st.Samples = slices.DeleteFunc(st.Samples, func(old Sample) bool { return s.At.Sub(old.At) > horizon || old.At.After(s.At) })
	if over := len(st.Samples) - mostSamples; over > 0 {
		st.Samples = st.Samples[over:]
	}
	st.Changes = slices.DeleteFunc(slices.Clone(st.Changes), func(old Change) bool {
		return s.At.Sub(old.At) > horizon || old.At.After(s.At)
	})
	return st
}

// within calls visit with the samples of the last window.
func (st *State) within(now time.Time, window time.Duration, visit func(Sample)) {
	for _, sample := range st.Samples {
		if now.Sub(sample.At) <= window {
			visit(sample)
		}
	}
}

// most is the highest level of a window: a rise that was expected and did not come holds no replica.
func (st *State) most(now time.Time, window time.Duration) float64 {
	out := 0.0
	st.within(now, window, func(s Sample) { out = math.Max(out, s.Level) })
	return out
}

// mostExpected is the highest expected demand of a window.
func (st *State) mostExpected(now time.Time, window time.Duration) float64 {
	out := 0.0
	st.within(now, window, func(s Sample) { out = math.Max(out, math.Max(s.Level, s.Expected)) })
	return out
}

// least is the demand that all of a window agrees on. A rise is expected after it has been for some time: a trend of random
// arrivals is over by then.
func (st *State) least(now time.Time, window time.Duration) float64 {
	level, expected := math.Inf(1), math.Inf(1)
	st.within(now, window, func(s Sample) { level = math.Min(level, s.Level) })
	st.within(now, max(window, steadying), func(s Sample) { expected = math.Min(expected, s.Expected) })
	return math.Max(level, expected)
}

// changed sums the changes of one sign within a period.
func (st *State) changed(now time.Time, period time.Duration, sign int) int {
	out := 0
	for _, change := range st.Changes {
		if now.Sub(change.At) < period && change.By*sign > 0 {
			out += change.By * sign
		}
	}
	return out
}

// expect returns the demand in a lead time: its level, the mean of the last minutes, and what the trend of a longer time
// adds. A trend within the noise adds nothing.
func (st *State) expect(now time.Time, measured float64, lead time.Duration) (level, expected float64) {
	level = measured
	count := 1.0
	st.within(now, steadying, func(s Sample) { level += s.Need; count++ })
	level /= count
	slope, noise := st.trend(now, max(lead, 5*time.Minute))
	if slope <= doubt*noise {
		return level, level
	}
	// The mean is half its time behind, and nothing grows forever.
	ahead := slope * (lead + steadying/2).Seconds()
	return level, level + math.Min(ahead, level+1)
}

// trend is the slope per second of the remembered demand, and its standard error. The present measurement is no part of
// it: a leap would look like noise, and more demand must never mean less.
func (st *State) trend(now time.Time, window time.Duration) (slope, noise float64) {
	var n, x, y, xx, xy float64
	st.within(now, window, func(s Sample) {
		at, value := s.At.Sub(now).Seconds(), s.Need
		n, x, y, xx, xy = n+1, x+at, y+value, xx+at*at, xy+at*value
	})
	spread := xx - x*x/n
	if n < 6 || !(spread > 0) {
		return 0, math.Inf(1)
	}
	slope = (xy - x*y/n) / spread
	var rest, lag, former float64
	st.within(now, window, func(s Sample) {
		miss := s.Need - y/n - slope*(s.At.Sub(now).Seconds()-x/n)
		rest, lag, former = rest+miss*miss, lag+miss*former, miss
	})
	if !(rest > 0) {
		return slope, 0
	}
	// A long answer is in flight at several looks: samples that follow one another are worth less than independent ones.
	repeated := math.Min(math.Max(lag/rest, 0), mostRepeated)
	return slope, math.Sqrt(rest / (n - 2) / spread * (1 + repeated) / (1 - repeated))
}
