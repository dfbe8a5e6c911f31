// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// Setting has the parameters of a simulation.
type Setting struct {
	Speed Speed
	// StartUp is the time from the request of a replica until it is ready.
	StartUp time.Duration
	// ReplicaPrice is the price of a replica in USD per hour, from its request to its end.
	ReplicaPrice float64
	// Initial is the number of replicas that are ready at the start.
	Initial int
	// Interval is the time between two decisions.
	Interval time.Duration
	// Start is the time of the first request; schedules depend on it.
	Start time.Time
}

// Scaler decides on the number of replicas at each interval.
type Scaler interface {
	Replicas(signals autoscale.Signals) int
}

// Result is the result of a simulation.
type Result struct {
	// TTFT has the time to first token of each request in seconds, in the order of the trace. It is infinite for a request
	// without an answer.
	TTFT []float64
	// Steps are the changes of the number of replicas: requested ones and ready ones.
	Steps []Step
	// ReplicaSeconds is the time of all replicas, and Dollars its price in USD.
	ReplicaSeconds, Dollars float64
	// Duration is the length of the simulation in seconds, until the last answer.
	Duration float64
	// StartUps is how many replicas were requested after the start. Wasted is how many of these never became ready.
	StartUps, Wasted int
	// Most is the largest number of replicas at once.
	Most int
}

// Step is the number of replicas from a moment on.
type Step struct {
	At             float64
	Desired, Ready int
}

// world is a simulation at one moment.
type world struct {
	Setting
	scaler   Scaler
	replicas []*replica
	held     []*job
	result   *Result
	now      float64
	desired  int
	woken    float64
}

// Run replays a trace and returns the result.
func Run(setting Setting, trace []Request, scaler Scaler) *Result {
	if setting.Interval <= 0 {
		setting.Interval = 15 * time.Second
	}
	w := world{
		Setting: setting, scaler: scaler, desired: setting.Initial, woken: math.Inf(-1),
		result: &Result{TTFT: slices.Repeat([]float64{math.Inf(1)}, len(trace))},
	}
	for range setting.Initial {
		w.replicas = append(w.replicas, w.newReplica(0, 0))
		last := w.replicas[len(w.replicas)-1]
		last.isReady = true
		last.schedule()
	}
	w.record()
	w.run(trace)
	w.finish()
	return w.result
}

func (w *world) newReplica(requested, ready float64) *replica {
	return &replica{speed: &w.Speed, requested: requested, ready: ready, gone: math.Inf(1), at: ready, due: ready}
}

func (w *world) run(trace []Request) {
	interval, tick, arrival := w.Interval.Seconds(), 0.0, 0
	for arrival < len(trace) || w.isBusy() {
		at, who := w.nextEvent()
		next := math.Inf(1)
		if arrival < len(trace) {
			next = trace[arrival].At
		}
		switch {
		case tick <= min(at, next):
			w.now = tick
			w.decide(interval)
			tick += interval
		case next <= at:
			w.now = next
			w.route(&job{Request: trace[arrival], index: arrival})
			arrival++
		default:
			w.now = at
			w.event(who)
		}
		if w.now > mostSeconds*2 { // the rule never serves the waiting requests
			return
		}
	}
}

func (w *world) isBusy() bool {
	if len(w.held) > 0 {
		return true
	}
	return slices.ContainsFunc(w.replicas, func(r *replica) bool { return r.outstanding() > 0 })
}

// nextEvent returns the next event of any replica: it becomes ready, a request gets its first token, or an answer ends.
func (w *world) nextEvent() (float64, *replica) {
	at, who := math.Inf(1), (*replica)(nil)
	for _, r := range w.replicas {
		if r.due < at {
			at, who = r.due, r
		}
	}
	return at, who
}

func (w *world) event(r *replica) {
	if !r.isReady {
		r.isReady, r.at = true, w.now
		r.schedule()
		held := w.held
		w.held = nil
		for _, j := range held {
			w.route(j)
		}
		w.record()
		return
	}
	r.step(w.now, func(j *job) { w.result.TTFT[j.index] = j.first - j.At })
	if r.isDraining && r.outstanding() == 0 {
		w.end(r)
	}
}

// route sends a request to the ready replica with the fewest requests, or holds it.
func (w *world) route(j *job) {
	var best *replica
	for _, r := range w.replicas {
		if r.isDraining || !r.isReady {
			continue
		}
		if best == nil || r.outstanding() < best.outstanding() {
			best = r
		}
	}
	if best == nil {
		w.held = append(w.held, j)
		w.woken = w.now
		return
	}
	best.accept(w.now, j)
}

// decide calls the scaler, and requests or ends replicas.
func (w *world) decide(interval float64) {
	signals := w.signals(interval)
	desired := max(0, w.scaler.Replicas(signals))
	live := slices.DeleteFunc(slices.Clone(w.replicas), func(r *replica) bool { return r.isDraining })
	for i := len(live); i < desired; i++ {
		w.replicas = append(w.replicas, w.newReplica(w.now, w.now+w.StartUp.Seconds()))
		w.result.StartUps++
	}
	// Unready replicas are removed first, then the newest, as in an InferenceSet.
	slices.SortStableFunc(live, func(a, b *replica) int { return cmp.Compare(b.ready, a.ready) })
	for _, r := range live[:max(0, len(live)-desired)] {
		r.isDraining = true
		if !r.isReady {
			w.result.Wasted++
		}
		if r.outstanding() == 0 {
			w.end(r)
		}
	}
	if desired != w.desired {
		w.desired = desired
		w.record()
	}
}

func (w *world) end(r *replica) {
	r.gone = w.now
	w.result.ReplicaSeconds += r.gone - r.requested
	w.replicas = slices.DeleteFunc(w.replicas, func(other *replica) bool { return other == r })
	w.record()
}

func (w *world) record() {
	ready := 0
	for _, r := range w.replicas {
		if r.isReady {
			ready++
		}
	}
	w.result.Most = max(w.result.Most, len(w.replicas))
	step := Step{At: w.now, Desired: w.desired, Ready: ready}
	if last := len(w.result.Steps) - 1; last >= 0 && w.result.Steps[last].At == w.now {
		w.result.Steps[last] = step
		return
	}
	w.result.Steps = append(w.result.Steps, step)
}

func (w *world) finish() {
	w.result.Duration = w.now
	for _, r := range w.replicas {
		w.result.ReplicaSeconds += w.now - r.requested
	}
	w.result.Dollars = w.result.ReplicaSeconds / 3600 * w.ReplicaPrice
}

// signals returns the engines' reports.
func (w *world) signals(interval float64) autoscale.Signals {
	out := autoscale.Signals{
		Now: w.at(w.now), Desired: w.desired, Held: len(w.held), ReplicaPrice: w.ReplicaPrice, IsPlanned: true,
		StartUps: []time.Duration{w.StartUp},
	}
	if !math.IsInf(w.woken, -1) {
		out.Woken = w.at(w.woken)
	}
	for _, r := range w.replicas {
		if !r.isReady || r.isDraining {
			continue
		}
		r.advance(w.now)
		r.schedule()
		out.Engines = append(out.Engines, r.report(interval))
	}
	return out
}

func (w *world) at(seconds float64) time.Time {
	return w.Start.Add(time.Duration(seconds * float64(time.Second)))
}

// report returns the metrics of an engine since the last poll.
func (r *replica) report(interval float64) autoscale.Engine {
	nan := math.NaN()
	out := autoscale.Engine{
		Running: float64(r.running()), Waiting: float64(len(r.queue)), KVCacheUse: math.Min(1, r.cached/r.speed.CacheTokens),
		Arrivals: nan, ServiceTime: nan, TimeToFirstToken: nan, TimePerOutputToken: nan,
	}
	for _, j := range r.queue {
		out.WaitingTokens += float64(j.Input)
	}
	seen, isFirst := r.seen, !r.isKnown
	r.seen, r.isKnown = observed{}, true
	if isFirst {
		return out
	}
	out.Arrivals = float64(seen.arrivals) / interval
	if seen.firsts > 0 {
		out.TimeToFirstToken = seen.firstSeconds / float64(seen.firsts)
	}
	if seen.ended > 0 {
		out.ServiceTime = seen.service / float64(seen.ended)
	}
	if n := len(r.decoding); n > 0 {
		out.TimePerOutputToken = r.speed.perToken(float64(r.running()))
	}
	return out
}
