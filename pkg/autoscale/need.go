// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"time"
)

// need is the number of replicas that the signals require. Engines with unknown signals have between no requests and
// the target's number: low and high are the resulting bounds. Both are NaN if nothing is known.
type need struct {
	metric    Metric
	low, high float64
	// value of the metric and its target, for messages.
	value, target float64
}

// needs returns the largest need of all targets. ok is false without any known signal.
func (p *pass) needs() (need, bool) {
	hasGrown := p.state.changed(p.s.Now, 2*p.lead, +1) > 0
	evidence := p.evidence()
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

// needOfSum divides the sum of a metric by its target, or uses the rates of the engines, if they are known.
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

// offered is the number of requests in flight if there were enough replicas with this many each: arrivals times
// service time, by Little's law. Waiting requests are past demand: they count only as far as they can be served within
// a lead time. ok is false if an engine does not report both.
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

// Steps of a need from a time. A time above its limit shows that replicas are missing, but not how many; a time far
// below shows that one replica may be deleted.
const (
	mostGrowth = 1.5
	isAmple    = 0.5
)

// needOfTime compares the mean of a time with its limit. Requests that waited for the last new replicas are late even
// after these are ready: until then, a time requires no more replicas.
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
		out.low = math.Min(out.low, math.Max(ready, float64(s.Desired)))
	}
	out.high = out.low
	return out, true
}
