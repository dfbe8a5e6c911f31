// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"time"
)

// need is how many replicas the signals ask for. Engines with unknown signals may have no requests, or as many as the
// target admits: low and high are the bounds of that. Both are NaN if nothing is known.
type need struct {
	metric    Metric
	low, high float64
	// value of the metric and its target, for messages.
	value, target float64
}

// needs returns the largest need of all targets. ok is false without any known signal.
func (p *Policy) needs(s *Signals, c Curve, lead time.Duration, hasGrown bool) (need, bool) {
	out, isKnown := need{}, false
	for _, target := range p.Targets {
		if !(target.Value > 0) || math.IsInf(target.Value, 0) {
			continue
		}
		var next need
		var ok bool
		if target.Metric.isTime() {
			next, ok = s.needOfTime(target, hasGrown)
		} else {
			next, ok = s.needOfSum(target, c, lead)
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

// needOfSum divides the sum of a metric by its target.
func (s *Signals) needOfSum(target Target, c Curve, lead time.Duration) (need, bool) {
	total, unknown := s.sum(target.Metric)
	if unknown == len(s.Engines) {
		return need{}, false
	}
	if target.Metric == RequestsInFlight {
		if offered, ok := s.offered(target.Value, c, lead); ok {
			total = offered
		}
	}
	low := math.Min(total/target.Value, mostDemand)
	if math.IsNaN(low) {
		return need{}, false
	}
	return need{
		metric: target.Metric, low: low, high: low + float64(unknown),
		value: total / float64(len(s.Engines)-unknown), target: target.Value,
	}, true
}

// offered is the number of requests that would be in flight on enough replicas with so many each: arrivals times
// service time, by Little's law. Waiting requests are the demand of the past: they count as far as they can be served
// within a lead time. ok is false if an engine does not report both.
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

// Steps of a need from a time. A time above its limit says that replicas are missing, not how many; one far below says
// that one may go.
const (
	mostGrowth = 1.5
	isAmple    = 0.5
)

// needOfTime compares the mean of a time with its limit. Requests that waited for the last new replicas are late even
// after these are ready: until then, a time asks for no more.
func (s *Signals) needOfTime(target Target, hasGrown bool) (need, bool) {
	mean := s.mean(target.Metric)
	if math.IsNaN(mean) {
		return need{}, false
	}
	ready := float64(len(s.Engines))
	out := need{metric: target.Metric, value: mean, target: target.Value, low: ready}
	switch ratio := mean / target.Value; {
	case ratio > 1 && hasGrown:
		out.low = math.Max(ready, float64(s.Desired))
	case ratio > 1:
		out.low = ready * math.Min(ratio, mostGrowth)
	case ratio < isAmple:
		out.low = math.Max(ready-1, 0)
	}
	out.high = out.low
	return out, true
}
