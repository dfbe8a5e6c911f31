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

// An interval is the time between two readings. A shorter one has too few requests, and the load during a longer one is
// unknown.
const (
	shortestInterval = 5 * time.Second
	longestInterval  = 10 * time.Minute
)

// A sample consists of intervals under one load, with at least these numbers of finished requests and of tokens. A
// lesson uses at least leastSamples under one load, among the newest mostSamples.
const (
	sampleRequests = 10
	sampleTokens   = 1000
	leastSamples   = 10
	mostSamples    = 20
)

// alike is the largest ratio of two numbers of requests that count as one load.
const alike = 1.5

// reading is an engine's report at one moment.
type reading struct {
	at time.Time
	engineprobe.Speed
}

// sample is a part of an engine's work.
type sample struct {
	// seconds is the total time between tokens, and tokens their number.
	seconds, tokens float64
	// requests is the number of finished requests. prompt and output are their tokens.
	requests, prompt, output float64
	// elapsed is the duration in seconds. inFlight is the number of requests in progress, integrated over that time.
	elapsed, inFlight float64
}

// perToken returns the mean time between two tokens, in seconds.
func (s *sample) perToken() float64 { return s.seconds / s.tokens }

// load returns the mean number of requests in progress.
func (s *sample) load() float64 { return s.inFlight / s.elapsed }

// isFull reports whether a sample has enough requests and tokens.
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

// between returns the work between two readings of one process; false if a sum fell or is unknown.
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
	// A request in its prompt counts as running, but none of its tokens is timed yet. So the larger estimate is the
	// better one.
	out.inFlight = max((a.Running+b.Running)/2*out.elapsed, out.seconds)
	return out, true
}

// isSteady reports whether the load was about the same all the time: at both readings and, by Little's law, between
// them. With pauses and bursts, the mean number of requests differs from the number during which tokens were made.
func (s *sample) isSteady(a, b *reading) bool {
	low, high := min(a.Running, b.Running), max(a.Running, b.Running)
	mean := (low + high) / 2
	decoding := s.seconds / s.elapsed
	switch {
	case !(low > 0) || !(a.Waiting == 0) || !(b.Waiting == 0) || s.tokens == 0:
		return false
	case high > low*alike && high > low+1:
		return false
	default: // requests in their prompt do not decode
		return decoding >= mean/2 && (decoding <= mean*alike || decoding <= mean+1)
	}
}

// engine is what the Meter keeps of one engine.
type engine struct {
	pod types.UID
	// last is the last reading; nil before the first.
	last *reading
	// open is the sample in progress. samples are full, the newest last.
	open    sample
	samples []sample
	// asked is the last time that a pass was requested to store the lesson.
	asked time.Time
}

// read adds a reading of a pod's engine. A new process starts from nothing.
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

// take adds steady work to the sample in progress. If the load differs, it begins a new sample.
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

// apart returns the ratio of two positive numbers, larger to smaller.
func apart(a, b float64) float64 { return max(a/b, b/a) }
