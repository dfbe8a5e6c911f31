// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package speed

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// An interval lies between two readings. Shorter ones have too few requests, and the load of longer ones is unknown.
const (
	shortestInterval = 5 * time.Second
	longestInterval  = 10 * time.Minute
)

// A sample has the intervals of one load, until these numbers of requests have ended and of tokens have come. A lesson
// takes leastSamples of one load, out of the mostSamples newest.
const (
	sampleRequests = 10
	sampleTokens   = 1000
	leastSamples   = 10
	mostSamples    = 20
)

// alike is the ratio up to which two numbers of requests are one load.
const alike = 1.5

// reading is what an engine reported at a moment.
type reading struct {
	at time.Time
	engineprobe.Speed
}

// sample is a part of an engine's work.
type sample struct {
	// seconds between tokens.
	seconds, tokens float64
	// requests that ended, with the tokens of their prompts and answers.
	requests, prompt, output float64
	// elapsed is how long it took in seconds, and inFlight the sum of the requests in progress over that time.
	elapsed, inFlight float64
}

// perToken is the mean time between two tokens, in seconds.
func (s *sample) perToken() float64 { return s.seconds / s.tokens }

// load is the mean number of requests in progress.
func (s *sample) load() float64 { return s.inFlight / s.elapsed }

// isFull reports whether a sample says enough.
func (s *sample) isFull() bool { return s.requests >= sampleRequests && s.tokens >= sampleTokens }

func (s *sample) add(other *sample) {
	s.seconds += other.seconds
	s.tokens += other.tokens
	s.requests += other.requests
	s.prompt += other.prompt
	s.output += other.output
	s.elapsed += other.elapsed
	s.inFlight += other.inFlight
}

// between returns the work between two readings of one process; false if the sums fell or are unknown.
func between(a, b *reading) (sample, bool) {
	out := sample{
		seconds: b.TokenTime.Seconds - a.TokenTime.Seconds, tokens: b.TokenTime.Count - a.TokenTime.Count,
		requests: b.Output.Requests - a.Output.Requests,
		prompt:   b.Prompt.Tokens - a.Prompt.Tokens, output: b.Output.Tokens - a.Output.Tokens,
		elapsed: b.at.Sub(a.at).Seconds(),
	}
	for _, grown := range []float64{out.seconds, out.tokens, out.requests, out.prompt, out.output} {
		if !(grown >= 0) || math.IsInf(grown, 0) {
			return sample{}, false
		}
	}
	// Prompts count as requests in progress, and no token of theirs is timed: the larger number is the better one.
	out.inFlight = max((a.Running+b.Running)/2*out.elapsed, out.seconds)
	return out, true
}

// isSteady reports whether a load was about the same all the time: at both ends, and between them by Little's law. Pauses
// and bursts make the mean number of requests differ from the number beside which a token was made.
func (s *sample) isSteady(a, b *reading) bool {
	low, high := min(a.Running, b.Running), max(a.Running, b.Running)
	mean := (low + high) / 2
	decoding := s.seconds / s.elapsed
	switch {
	case !(low > 0) || !(a.Waiting == 0) || !(b.Waiting == 0) || s.tokens == 0:
		return false
	case high > low*alike && high > low+1:
		return false
	default: // requests with a prompt in progress do not decode
		return decoding >= mean/2 && (decoding <= mean*alike || decoding <= mean+1)
	}
}

// engine is what is remembered of one engine.
type engine struct {
	pod types.UID
	// last is the last reading, nil if the next one begins anew.
	last *reading
	// open is the sample in progress, samples are full ones, the newest last.
	open    sample
	samples []sample
	// asked is when somebody was last asked to store the lesson.
	asked time.Time
}

// read takes a reading of a pod's engine. Another process begins anew.
func (e *engine) read(pod types.UID, now *reading) {
	if e.last == nil || e.pod != pod || e.last.Started != now.Started && !math.IsNaN(now.Started) {
		*e = engine{pod: pod, last: now, asked: e.asked}
		return
	}
	elapsed := now.at.Sub(e.last.at)
	if elapsed >= 0 && elapsed < shortestInterval {
		return
	}
	before := e.last
	e.last = now
	if elapsed < 0 || elapsed > longestInterval {
		e.open = sample{}
		return
	}
	work, ok := between(before, now)
	if !ok {
		*e = engine{pod: pod, last: now, asked: e.asked}
		return
	}
	if !work.isSteady(before, now) {
		e.open = sample{}
		return
	}
	e.take(&work)
}

// take adds steady work to the sample in progress, or begins another one with it.
func (e *engine) take(work *sample) {
	if e.open.elapsed > 0 && apart(e.open.load(), work.load()) > alike {
		e.open = sample{}
	}
	e.open.add(work)
	if !e.open.isFull() {
		return
	}
	e.samples = append(e.samples, e.open)
	e.open = sample{}
	if over := len(e.samples) - mostSamples; over > 0 {
		e.samples = slices.Delete(e.samples, 0, over)
	}
}

// apart is the ratio of two positive numbers, at least 1.
func apart(a, b float64) float64 { return max(a/b, b/a) }
