// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"slices"
	"time"
)

// State is the memory between two decisions. The zero value is the memory of a controller that has just started: it
// deletes no ready replica until it has watched the set for a window.
type State struct {
	// Since is the time of the first decision.
	Since   time.Time
	Samples []Sample
	Changes []Change
	Curve   Curve
	// Busy is when a request was last in flight, or may have been.
	Busy time.Time
	// HasEngines: an engine was ready at the last decision.
	HasEngines bool
	// Ready is when an engine became ready while no other was ready. It is zero if none has since the memory began.
	Ready time.Time
	// IsShort: at the last look with signals, the engines had work for more replicas than the set has.
	IsShort bool
	Lost    Loss
}

// Loss is the last time when a set lost its last ready engine while it needed more replicas, with its number of
// replicas at that time. It is zero if there was no such loss.
type Loss struct {
	At       time.Time
	Replicas int
}

// Sample is the demand at one moment, in replicas.
type Sample struct {
	At time.Time
	// Need is the measured demand. Level is its mean over the last minutes, raised for engines that do not answer.
	// Expected is the demand after a lead time.
	Need, Level, Expected float64
}

// Change is one change of the number of replicas.
type Change struct {
	At time.Time
	By int
}

// Limits of the memory.
const (
	// mostSamples and mostChanges are enough for the longest window, 24 hours, with a decision every 15 s.
	mostSamples = 6000
	mostChanges = 6000
	// steadying is the time over which the demand is averaged, because requests arrive at random.
	steadying = 2 * time.Minute
	// doubt is how many standard errors the slope of a trend must exceed.
	doubt = 3
	// mostRepeated limits the correlation of consecutive samples in the error of a trend.
	mostRepeated = 0.9
)

// remember returns the state with another sample, and without the samples and changes beyond the horizon, which no
// window needs.
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

// within calls visit for each sample of the last window.
func (st *State) within(now time.Time, window time.Duration, visit func(Sample)) {
	for _, sample := range st.Samples {
		if now.Sub(sample.At) <= window {
			visit(sample)
		}
	}
}

// most returns the highest level in a window. It ignores expected demand: an expected rise that did not come keeps no
// replica.
func (st *State) most(now time.Time, window time.Duration) float64 {
	out := 0.0
	st.within(now, window, func(s Sample) { out = math.Max(out, s.Level) })
	return out
}

// mostExpected returns the highest level or expected demand in a window.
func (st *State) mostExpected(now time.Time, window time.Duration) float64 {
	out := 0.0
	st.within(now, window, func(s Sample) { out = math.Max(out, math.Max(s.Level, s.Expected)) })
	return out
}

// least returns the demand that every sample in the window supports. An expected rise counts only if it was expected
// for some time, because a trend in random arrivals is over by then.
func (st *State) least(now time.Time, window time.Duration) float64 {
	level, expected := math.Inf(1), math.Inf(1)
	st.within(now, window, func(s Sample) { level = math.Min(level, s.Level) })
	st.within(now, max(window, steadying), func(s Sample) { expected = math.Min(expected, s.Expected) })
	return math.Max(level, expected)
}

// changed returns the sum of the changes with one sign within a period.
func (st *State) changed(now time.Time, period time.Duration, sign int) int {
	out := 0
	for _, change := range st.Changes {
		if now.Sub(change.At) < period && change.By*sign > 0 {
			out += change.By * sign
		}
	}
	return out
}

// expect returns the level of the demand (its mean over the last minutes) and the expected demand after a lead time.
// The expected demand adds the growth by the trend of a longer time. A falling trend, or one within the noise, adds
// nothing.
func (st *State) expect(now time.Time, measured float64, lead time.Duration) (level, expected float64) {
	level = measured
	count := 1.0
	st.within(now, steadying, func(s Sample) { level += s.Need; count++ })
	level /= count
	slope, noise := st.trend(now, max(lead, 5*time.Minute))
	if slope <= doubt*noise {
		return level, level
	}
	// The mean lags behind by half of its window. The growth is limited, because nothing grows forever.
	ahead := slope * (lead + steadying/2).Seconds()
	return level, level + math.Min(ahead, level+1)
}

// trend returns the slope of the remembered demand per second, and its standard error. It leaves out the present
// measurement: a jump would count as noise, so that more demand could mean fewer replicas.
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
	// A long answer is in flight at several polls, so consecutive samples are correlated and count less than independent
	// ones.
	repeated := math.Min(math.Max(lag/rest, 0), mostRepeated)
	return slope, math.Sqrt(rest / (n - 2) / spread * (1 + repeated) / (1 - repeated))
}
