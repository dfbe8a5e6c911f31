// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscale decides how many replicas a set of equal replicas needs.
//
// Decide is a function of a policy, of signals from the running engines, and of a short memory of earlier signals. The
// controller and the simulator use it. It must not know where signals come from, how replicas start, or what they
// serve: no client, no clock, no I/O.
package autoscale

import (
	"math"
	"time"
)

// Metric names a signal with a target.
type Metric string

// The metrics. Counts and shares have a target for each replica: their sum over the replicas says how many are needed.
// Times have a limit: they show only whether there are enough.
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

// isTime reports whether a metric is a limit of a time.
func (m Metric) isTime() bool { return m == TimeToFirstToken || m == TimePerOutputToken }

// Target of a metric, for each replica: a count, a share from 0 to 1, or seconds.
type Target struct {
	Metric Metric
	Value  float64
}

// Pace limits changes in one direction.
type Pace struct {
	// Window in which the demand must agree before the set changes. Negative means the lead time.
	Window time.Duration
	// Most replicas in each Period; 0 means no limit.
	Most   int
	Period time.Duration
}

// FollowsLead as a window is the lead time: a replica that is idle for as long costs as much as a start.
const FollowsLead time.Duration = -1

// Policy is the rule of a set's owner.
type Policy struct {
	// Min and Max number of replicas.
	Min, Max int
	Targets  []Target
	Up, Down Pace
	// Schedules raise or lower Min and Max at recurring times.
	Schedules []Schedule
	// MaxHourlyPrice of all replicas in USD; 0 means no limit. It beats Min.
	MaxHourlyPrice float64
	// IdleAfter is how long nothing must be in flight before the last replica goes; at least LeastIdle.
	IdleAfter time.Duration
	// LeadPercentile of the set's start-ups is the lead time, from 1 to 100.
	LeadPercentile int
	// UsualLead is the lead time before the first start-up.
	UsualLead time.Duration
}

// Defaults of a policy.
const (
	UsualIdleAfter      = 10 * time.Minute
	UsualLeadPercentile = 90
	UsualLead           = 10 * time.Minute
	// LeastIdle bounds IdleAfter. Routers repeat a wake every 30 s: if a wake were older than IdleAfter before it is
	// seen, it would start nothing.
	LeastIdle = time.Minute
	// MostLead bounds the lead time: a start-up that waited for a person or a quota does not predict the next one.
	MostLead = time.Hour
	// tolerance is the share by which the demand may differ from the replicas without effect.
	tolerance = 0.1
)

// withDefaults returns a policy without senseless values.
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

// affordable is how many replicas the policy pays for. Before the first plan, their price is unknown: one starts, and none
// is added. A plan without a price has no limit.
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
