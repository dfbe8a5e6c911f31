// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package speed_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// served is a request in progress.
type served struct{ prefill, tokens, made float64 }

// simulated is an engine. perStep is its time per token in seconds for a number of decoding requests.
type simulated struct {
	*world
	random  *rand.Rand
	perStep func(decoding float64) float64
	running []served
}

// arrive adds a request with random lengths around the means, if the engine has room. Other requests go elsewhere.
func (e *simulated) arrive() {
	if len(e.running) >= 32 {
		return
	}
	e.running = append(e.running, served{
		prefill: 0.2 + 0.3*e.random.Float64(), tokens: math.Ceil(50 + e.random.ExpFloat64()*150),
	})
}

// step simulates a fifth of a second.
func (e *simulated) step() {
	const dt = 0.2
	decoding := 0.0
	for _, r := range e.running {
		if r.prefill <= 0 {
			decoding++
		}
	}
	made := dt / e.perStep(math.Max(decoding, 1))
	var left []served
	for _, r := range e.running {
		if r.prefill > 0 {
			r.prefill -= dt
			left = append(left, r)
			continue
		}
		e.sums.TokenTime.Seconds += dt
		e.sums.TokenTime.Count += made
		if r.made += made; r.made < r.tokens {
			left = append(left, r)
			continue
		}
		e.sums.Prompt.Requests++
		e.sums.Output.Requests++
		e.sums.Prompt.Tokens += 800
		e.sums.Output.Tokens += r.tokens
	}
	e.running = left
	e.sums.Running = float64(len(left))
	e.now = e.now.Add(200 * time.Millisecond)
}

// run serves for a time, with a rate of arrivals for each moment, and makes a reading every so often.
func (e *simulated) run(length, every time.Duration, rate func(since time.Duration) float64) {
	const dt = 200 * time.Millisecond
	for since := time.Duration(0); since < length; since += dt {
		if e.random.Float64() < rate(since)*dt.Seconds() {
			e.arrive()
		}
		e.step()
		if since%every == 0 {
			e.look()
		}
	}
}

// TestNoisyLoads: under random, bursty and pausing loads, a lesson is at most an eighth slower than the engine really
// is under the load of the lesson. Of a factor of 1.5, a plan then learns at least three quarters.
func TestNoisyLoads(t *testing.T) {
	loads := map[string]func(mean float64) func(time.Duration) float64{
		"random": func(mean float64) func(time.Duration) float64 {
			return func(time.Duration) float64 { return mean }
		},
		"a burst each minute": func(mean float64) func(time.Duration) float64 {
			return func(since time.Duration) float64 {
				if since%time.Minute < 10*time.Second {
					return 5 * mean
				}
				return mean / 5
			}
		},
		"pauses of half a minute": func(mean float64) func(time.Duration) float64 {
			return func(since time.Duration) float64 {
				if since%time.Minute < 30*time.Second {
					return 2 * mean
				}
				return 0
			}
		},
		"a wave over ten minutes": func(mean float64) func(time.Duration) float64 {
			return func(since time.Duration) float64 { return mean * (1 + math.Sin(2*math.Pi*since.Minutes()/10)) }
		},
	}
	for name, load := range loads {
		for _, every := range []time.Duration{15 * time.Second, 5 * time.Minute} {
			lessons, worst, best := 0, 0.0, math.Inf(1)
			for seed := range uint64(8) {
				random := rand.New(rand.NewPCG(seed, 1))
				// The engines differ in how much their step grows with the number of requests: from hardly to
				// proportionally.
				base, each := 0.02, 0.01*random.Float64()
				e := &simulated{world: newWorld(), random: random, perStep: func(n float64) float64 { return base + each*n }}
				e.run(2*time.Hour, every, load(0.1+2*random.Float64()))
				lesson := e.lesson()
				if lesson.TimePerOutputToken == "" {
					continue
				}
				got, err := strconv.ParseFloat(lesson.TimePerOutputToken, 64)
				if err != nil {
					t.Fatal(err)
				}
				ratio := got / 1e3 / e.perStep(float64(lesson.Concurrency))
				lessons, worst, best = lessons+1, max(worst, ratio), min(best, ratio)
				if ratio > 1.125 {
					t.Errorf("%s, looks every %v, seed %d: %s ms for %d requests, truly %.3f", name, every, seed, lesson.TimePerOutputToken,
						lesson.Concurrency, e.perStep(float64(lesson.Concurrency))*1e3)
				}
			}
			t.Logf("figure: %s, looks every %v: %d of 8 engines taught, %.2f to %.2f of the truth", name, every, lessons, best, worst)
			if name == "random" && lessons < 4 {
				t.Errorf("%d of 8 engines under a random load taught, with looks every %v", lessons, every)
			}
		}
	}
}
