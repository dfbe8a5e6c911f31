// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscale decides how many replicas a set of equal replicas needs.
//
// Decide is a function of a policy, of signals from the running engines, and of a short memory of earlier signals. The
// controller and the simulator call it. The package must not know where signals come from, how replicas start, or their
// purpose. It has no client, clock or I/O.
package autoscale

import (
	"math"
	"time"
)

// Metric names a signal with a target.
type Metric string

// The metrics. Counts and shares have a target per replica: their sum over the replicas determines how many are needed.
// Latencies have a limit: they show only whether there are enough replicas.
const (
	RequestsInFlight   Metric = "RequestsInFlight"
	WaitingRequests    Metric = "WaitingRequests"
	WaitingTokens      Metric = "WaitingTokens"
	KVCacheUse         Metric = "KVCacheUse"
	TimeToFirstToken   Metric = "TimeToFirstToken"
	TimePerOutputToken Metric = "TimePerOutputToken"
)

// Metrics returns all metrics.
func Metrics() []Metric {
	return []Metric{RequestsInFlight, WaitingRequests, WaitingTokens, KVCacheUse, TimeToFirstToken, TimePerOutputToken}
}

// isTime reports whether a metric is a latency.
func (m Metric) isTime() bool { return m == TimeToFirstToken || m == TimePerOutputToken }

// Target is the target of a metric per replica: a count, a share from 0 to 1, or seconds.
type Target struct {
	Metric Metric
	Value  float64
}

// Pace limits changes in one direction.
type Pace struct {
	// Window is how long the demand must agree before the number changes. Negative means the lead time.
	Window time.Duration
	// Most is the largest change in each Period, in replicas; 0 means no limit.
	Most   int
	Period time.Duration
}

// FollowsLead is a Window of the length of the lead time. A replica that is idle for this long costs as much as a
// start.
const FollowsLead time.Duration = -1

// Policy has the rules of a set's owner.
type Policy struct {
	// Min and Max are the limits of the number of replicas.
	Min, Max int
	Targets  []Target
	Up, Down Pace
	// Schedules raise or lower Min and Max at recurring times.
	Schedules []Schedule
	// MaxHourlyPrice is the limit of the price of all replicas, in USD per hour; 0 means no limit. It takes precedence
	// over Min.
	MaxHourlyPrice float64
	// IdleAfter is how long no request may be in flight before the last replica is removed; at least LeastIdle.
	IdleAfter time.Duration
	// LeadPercentile selects the lead time from the set's start-up times, from 1 to 100.
	LeadPercentile int
	// UsualLead is the lead time until the first start-up.
	UsualLead time.Duration
}

// Defaults of a policy.
const (
	UsualIdleAfter      = 10 * time.Minute
	UsualLeadPercentile = 90
	UsualLead           = 10 * time.Minute
	// LeastIdle is the shortest IdleAfter. Routers repeat a wake every 30 s. With a shorter IdleAfter, a wake could expire
	// before it is seen, and would start nothing.
	LeastIdle = time.Minute
	// MostLead is the longest lead time. A longer start-up waited for a person or a quota, and does not predict the next
	// one.
	MostLead = time.Hour
	// tolerance is how far the demand may exceed a whole number of replicas without effect, in replicas.
	tolerance = 0.1
)

// withDefaults returns the policy with valid values.
func (p Policy) withDefaults() Policy {
	p.Min = max(0, p.Min)
	p.Max = max(p.Min, p.Max)
	if p.IdleAfter <= 0 {
		p.IdleAfter = UsualIdleAfter
	}
	p.IdleAfter = max(p.IdleAfter, LeastIdle)
	if p.LeadPercentile <= 0 || p.LeadPercentile > 100 {
		p.LeadPercentile = UsualLeadPercentile
	}
	if p.UsualLead <= 0 {
		p.UsualLead = UsualLead
	}
	return p
}

// affordable returns how many replicas the policy pays for. Before the first plan, the price is unknown: an empty set may
// start one replica, and any other set keeps its number. If a plan has no price, there is no limit.
func (p *Policy) affordable(s *Signals) int {
	switch {
	case p.MaxHourlyPrice <= 0:
		return math.MaxInt
	case s.ReplicaPrice > 0:
		return int(math.Min(p.MaxHourlyPrice/s.ReplicaPrice+1e-9, 1e6))
	case s.IsPlanned:
		return math.MaxInt
	default:
		return max(1, s.Desired)
	}
}
