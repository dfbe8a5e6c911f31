// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"time"
)

// arriving is how long, after the first replica is ready, the requests that waited for it still arrive. They distort
// the rates of the polls in this time.
const arriving = 45 * time.Second

// evidence selects the signals that may request more replicas than the set has. A queue of unknown age is weak
// evidence: after a wake, it has all requests that waited for the first replica, and it may be gone before another
// replica starts.
type evidence struct {
	// levels: the present load and latencies of the engines count. queue: waiting requests count, too.
	levels, queue bool
	// rates: the rates since the last poll count.
	rates bool
	// least is how many replicas are justified without the above.
	least float64
}

// everything is the evidence of a set that has been watched for long enough.
func everything() evidence { return evidence{levels: true, queue: true, rates: true} }

// evidence returns the evidence at this moment.
func (p *pass) evidence() evidence {
	isOver := func(since time.Time, length time.Duration) bool {
		return since.IsZero() || p.s.Now.Sub(since) >= length
	}
	isAwake := isOver(p.state.Ready, steadying)
	return evidence{
		levels: isAwake,
		queue:  isAwake && isOver(p.state.Since, steadying),
		rates:  isOver(p.state.Ready, arriving),
		least:  math.Max(float64(p.s.Desired), p.afterLoss()),
	}
}

// afterLoss returns one replica more than there were when the last engine crashed under a load for which the engines were
// too few. Otherwise, a set whose only replica crashes within minutes of each start would never grow: each start looks
// like a wake, with a queue of unknown age. One replica for each crash limits the cost if the load is not the reason.
func (p *pass) afterLoss() float64 {
	lost := p.state.Lost
	if age := p.s.Now.Sub(lost.At); lost.At.IsZero() || age < 0 || age > MostLead {
		return 0
	}
	return float64(lost.Replicas + 1)
}

// bySum returns the number of replicas for the sum of a metric. Signals without evidence request no more replicas than
// the set has, or one more after a crash.
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
	return math.Max(known, math.Min(all, e.least))
}

// running returns the number of running requests on all engines that report their requests in flight.
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

// queued returns how many replicas are needed so that, after a lead time, at most each requests wait per replica. It
// divides the number of requests by the capacity of a replica. The requests are the waiting ones and the arrivals in
// that time. The capacity is the number of requests that one replica answers or may leave waiting. ok is false if a
// rate is unknown.
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
