// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"math"
	"slices"
	"time"
)

// Signals describe a set at one moment.
type Signals struct {
	Now time.Time
	// Desired is the present number of desired replicas.
	Desired int
	// Engines are the engines of the ready replicas. An engine that does not answer is Unknown.
	Engines []Engine
	// Held is how many requests wait outside because no replica is ready.
	Held int
	// Woken is when a replica was last requested by annotation; zero if never.
	Woken time.Time
	// StartUps are the durations of the set's recent start-ups.
	StartUps []time.Duration
	// ReplicaPrice is the price of a replica in USD per hour; 0 if it is unknown or the plan has none.
	ReplicaPrice float64
	// IsPlanned: a replica has, or had, a plan. If so, a price of 0 means that the plan has no price.
	IsPlanned bool
}

// Engine has the signals of one replica. NaN means unknown.
type Engine struct {
	Running, Waiting, WaitingTokens float64
	// KVCacheUse is the used share of the KV cache, from 0 to 1.
	KVCacheUse float64
	// Arrivals is the rate of requests per second since the last poll. ServiceTime is the time of a request in seconds,
	// without its wait.
	Arrivals, ServiceTime float64
	// TimeToFirstToken and TimePerOutputToken are latencies of the last requests in seconds; NaN if there were none.
	TimeToFirstToken, TimePerOutputToken float64
}

// Unknown returns the signals of an engine that does not answer.
func Unknown() Engine {
	nan := math.NaN()
	return Engine{
		Running: nan, Waiting: nan, WaitingTokens: nan, KVCacheUse: nan, Arrivals: nan, ServiceTime: nan,
		TimeToFirstToken: nan, TimePerOutputToken: nan,
	}
}

// value returns the value of a metric; NaN if it is unknown or invalid.
func (e *Engine) value(metric Metric) float64 {
	value := math.NaN()
	switch metric {
	case RequestsInFlight:
		value = e.Running + e.Waiting
	case WaitingRequests:
		value = e.Waiting
	case WaitingTokens:
		value = e.WaitingTokens
	case KVCacheUse:
		value = e.KVCacheUse
	case TimeToFirstToken:
		value = e.TimeToFirstToken
	case TimePerOutputToken:
		value = e.TimePerOutputToken
	}
	if value < 0 || math.IsInf(value, 0) {
		return math.NaN()
	}
	return value
}

// isIdle reports whether an engine is known to have no request.
func (e *Engine) isIdle() bool { return e.value(RequestsInFlight) == 0 }

// isSilent reports whether an engine does not report its requests. Such an engine may be the busiest.
func (s *Signals) isSilent() bool {
	_, unknown := s.sum(RequestsInFlight)
	return unknown > 0
}

// busy returns how many replicas have a request, or may have one.
func (s *Signals) busy() int {
	count := 0
	for i := range s.Engines {
		if !s.Engines[i].isIdle() {
			count++
		}
	}
	return count
}

// hasServed reports whether an engine has had a request since the last poll, even if it has none at this moment.
func (s *Signals) hasServed() bool {
	return slices.ContainsFunc(s.Engines, func(e Engine) bool { return e.Arrivals > 0 || e.TimePerOutputToken > 0 })
}

// sum returns the sum of a metric over the engines with a known value, and the number of the other engines.
func (s *Signals) sum(metric Metric) (total float64, unknown int) {
	for i := range s.Engines {
		value := s.Engines[i].value(metric)
		if math.IsNaN(value) {
			unknown++
			continue
		}
		total += value
	}
	return total, unknown
}

// mean returns the mean of a metric over the engines with a known value, weighted by their requests; NaN if none is
// known.
func (s *Signals) mean(metric Metric) float64 {
	var total, weight float64
	for i := range s.Engines {
		value := s.Engines[i].value(metric)
		if math.IsNaN(value) {
			continue
		}
		each := 1.0
		if n := s.Engines[i].value(RequestsInFlight); n > 0 {
			each += n
		}
		total, weight = total+value*each, weight+each
	}
	return total / weight
}

// Percentile returns the smallest value that at least p percent of the values do not exceed; 0 if there are none.
func Percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := (len(sorted)*p + 99) / 100
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// lead returns the lead time: how long before the demand a replica must be requested.
func (p *Policy) lead(startUps []time.Duration) time.Duration {
	lead := Percentile(startUps, p.LeadPercentile)
	if lead <= 0 {
		lead = p.UsualLead
	}
	return min(lead, MostLead)
}
