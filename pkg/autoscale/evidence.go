// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"time"
)

// arriving begins when the first replica is ready. In this time, the requests that waited for the replica arrive, and a
// look counts them in its rates.
const arriving = 45 * time.Second

// evidence marks the signals that may ask for more replicas than the set has. A queue of unknown age says little. After
// a wake, it has all requests that waited for the first replica, and may be gone before another one starts.
type evidence struct {
	// levels are what the engines hold at this moment, and their times. queue is the part that waits.
	levels, queue bool
	// rates are what the engines counted since the last look.
	rates bool
}

// evidence of this moment.
func (p *pass) evidence() evidence {
	isOver := func(since time.Time, length time.Duration) bool {
		return since.IsZero() || p.s.Now.Sub(since) >= length
	}
	isAwake := isOver(p.state.Ready, steadying)
	return evidence{
		levels: isAwake,
		queue:  isAwake && isOver(p.state.Since, steadying),
		rates:  isOver(p.state.Ready, arriving),
	}
}

// bySum is the number of replicas for the sum of a metric. What is no evidence asks for no more than the set has.
func (s *Signals) bySum(target Target, total float64, e evidence) float64 {
	all, known := total/target.Value, 0.0
	switch {
	case !e.levels:
	case e.queue:
		return all
	case target.Metric == KVCacheUse:
		known = all
	case target.Metric == RequestsInFlight:
		known = s.running() / target.Value
	}
	return math.Max(known, math.Min(all, float64(s.Desired)))
}

// running requests on all engines that report what is in flight.
func (s *Signals) running() float64 {
	out := 0.0
	for i := range s.Engines {
		e := &s.Engines[i]
		if running := e.value(RequestsInFlight) - e.value(WaitingRequests); running > 0 {
			out += running
		}
	}
	return out
}

// queued is the number of replicas that leave at most each requests waiting per replica after a lead time. It divides
// all requests of this time by those one replica may leave or answer: each, and the answers of a full engine. The
// requests wait now or arrive until then. ok is false if a rate is unknown.
func (s *Signals) queued(each float64, lead time.Duration) (replicas float64, ok bool) {
	var waiting, arrivals, answers, full float64
	for i := range s.Engines {
		e := &s.Engines[i]
		inFlight := e.value(RequestsInFlight)
		switch {
		case math.IsNaN(inFlight):
			continue
		case !(e.Arrivals >= 0) || math.IsInf(e.Arrivals, 0):
			return 0, false
		}
		arrivals += e.Arrivals
		queue := e.value(WaitingRequests)
		if queue == 0 {
			continue
		}
		rate := (inFlight - queue) / e.ServiceTime // by Little's law
		if !(rate > 0) || math.IsInf(rate, 0) {
			return 0, false
		}
		waiting, answers, full = waiting+queue, answers+rate, full+1
	}
	if waiting == 0 {
		return 0, true
	}
	seconds := lead.Seconds()
	return (waiting + arrivals*seconds) / (each + answers/full*seconds), true
}
