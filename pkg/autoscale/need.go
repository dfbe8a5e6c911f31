// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"time"
)

// need is the number of replicas that the signals require. Engines with unknown signals have no requests by the
// assumption of low, and are at their target by that of high.
type need struct {
	metric    Metric
	low, high float64
	// value is the value of the metric and target its target, for messages.
	value, target float64
}

// needs returns the largest need of all targets by the evidence. It returns false if no signal is known.
func (p *pass) needs(evidence evidence) (need, bool) {
	hasGrown := p.state.changed(p.s.Now, 2*p.lead, +1) > 0
	out, isKnown := need{}, false
	for _, target := range p.policy.Targets {
		if !(target.Value > 0) || math.IsInf(target.Value, 0) {
			continue
		}
		var next need
		var ok bool
		if target.Metric.isTime() {
			next, ok = p.s.needOfTime(target, hasGrown, evidence)
		} else {
			next, ok = p.needOfSum(target, evidence)
		}
		if !ok {
			continue
		}
		if !isKnown || next.low > out.low {
			out.metric, out.value, out.target = next.metric, next.value, next.target
		}
		out.low, out.high, isKnown = math.Max(out.low, next.low), math.Max(out.high, next.high), true
	}
	return out, isKnown
}

// needOfSum returns the need for a count or a share. It uses the rates of the engines if they are known. Otherwise, it
// divides the sum of the metric by the target.
func (p *pass) needOfSum(target Target, e evidence) (need, bool) {
	s := p.s
	total, unknown := s.sum(target.Metric)
	if unknown == len(s.Engines) {
		return need{}, false
	}
	low, hasRates := math.NaN(), false
	switch {
	case !e.rates:
	case target.Metric == RequestsInFlight:
		low, hasRates = s.offered(target.Value, p.state.Curve, p.lead)
		total = low
		low /= target.Value
	case target.Metric == WaitingRequests:
		low, hasRates = s.queued(target.Value, p.lead)
		low = math.Min(low, total/target.Value)
	}
	if !hasRates {
		total, _ = s.sum(target.Metric)
		low = s.bySum(target, total, e)
	}
	low = math.Min(low, mostDemand)
	if math.IsNaN(low) {
		return need{}, false
	}
	return need{
		metric: target.Metric, low: low, high: low + float64(unknown),
		value: total / float64(len(s.Engines)-unknown), target: target.Value,
	}, true
}

// offered returns how many requests would be in flight with enough replicas, each with this many requests: arrivals
// times service time, by Little's law. Waiting requests are demand of the past, so their work is spread over a lead
// time. ok is false if an engine with requests does not report both rates.
func (s *Signals) offered(each float64, c Curve, lead time.Duration) (float64, bool) {
	var out float64
	for i := range s.Engines {
		e := &s.Engines[i]
		running, waiting := e.value(RequestsInFlight)-e.value(WaitingRequests), e.value(WaitingRequests)
		if math.IsNaN(running) {
			continue
		}
		if !(e.Arrivals >= 0) || !(e.ServiceTime >= 0) || math.IsInf(e.Arrivals*e.ServiceTime, 0) {
			if running+waiting > 0 {
				return 0, false
			}
			continue
		}
		service := e.ServiceTime * c.slowdown(running, each)
		out += e.Arrivals*service + waiting*math.Min(1, service/math.Max(lead.Seconds(), 1))
	}
	return out, true
}

// Limits of a need that follows from a latency. A latency above its target shows that replicas are missing, but not how
// many. A latency far below it shows that one replica may be deleted.
const (
	mostGrowth = 1.5
	isAmple    = 0.5
)

// needOfTime compares the mean of a latency with its target. Requests that waited for newly added replicas are late
// even after these are ready. So for some time after such a change, a latency requires no more replicas than the set
// has.
func (s *Signals) needOfTime(target Target, hasGrown bool, e evidence) (need, bool) {
	mean := s.mean(target.Metric)
	ready := float64(len(s.Engines))
	if math.IsNaN(mean) {
		// Engines without requests report no times.
		fewer := math.Max(ready-1, 0)
		return need{metric: target.Metric, target: target.Value, low: fewer, high: fewer}, ready > 0 && s.busy() == 0
	}
	out := need{metric: target.Metric, value: mean, target: target.Value, low: ready}
	switch ratio := mean / target.Value; {
	case ratio > 1 && hasGrown:
		out.low = math.Max(ready, float64(s.Desired))
	case ratio > 1:
		out.low = ready * math.Min(ratio, mostGrowth)
	case ratio < isAmple:
		out.low = math.Max(ready-1, 0)
	}
	if !e.levels {
		out.low = math.Min(out.low, math.Max(ready, e.least))
	}
	out.high = out.low
	return out, true
}
