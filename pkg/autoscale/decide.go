// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Reason is the reason for a set's number of replicas.
type Reason string

// The reasons of a decision.
const (
	// Steady: the replicas match the demand.
	Steady Reason = "Steady"
	// DemandRose and DemandFell: the number follows the demand.
	DemandRose Reason = "DemandRose"
	DemandFell Reason = "DemandFell"
	// Withdrawn: replicas that are not ready yet are no longer needed.
	Withdrawn Reason = "Withdrawn"
	// Settling: fewer replicas would be enough, but the window is not over.
	Settling Reason = "Settling"
	// Idle: no request has been in flight for IdleAfter, so all replicas are removed.
	Idle Reason = "Idle"
	// AtZero: no replica is needed until a request arrives.
	AtZero Reason = "AtZero"
	// Woken: a request arrived for a set without replicas.
	Woken Reason = "Woken"
	// NoSignals: no engine reports its signals, so the number stays.
	NoSignals Reason = "NoSignals"
	// Starting: no replica is ready yet.
	Starting Reason = "Starting"
	// Paced: the rate of changes is limited.
	Paced Reason = "Paced"
	// AtMinimum, AtMaximum and AtPriceCap: a limit determines the number, not the demand.
	AtMinimum  Reason = "AtMinimum"
	AtMaximum  Reason = "AtMaximum"
	AtPriceCap Reason = "AtPriceCap"
)

// Decision is a number of replicas with its reason.
type Decision struct {
	Replicas int
	Reason   Reason
	// Message is a sentence for users with the figures.
	Message string
	// Need and Expected are the demand in replicas, now and after a lead time; negative if unknown.
	Need, Expected float64
	// Metric is the metric that requires the most replicas; empty if none is known.
	Metric Metric
	Lead   time.Duration
}

// pass has the inputs and intermediate results of one decision.
type pass struct {
	policy Policy
	s      *Signals
	state  State
	lead   time.Duration
	bounds bounds
	need   need
	known  bool
}

// clockSkew is how far a router's clock may be ahead.
const clockSkew = time.Minute

// Decide returns the number of replicas for the signals, and the state for the next decision.
func Decide(policy Policy, signals Signals, state State) (Decision, State) {
	p := pass{policy: policy.withDefaults(), s: &signals, state: state}
	signals.Desired = max(0, signals.Desired)
	if signals.Woken.After(signals.Now.Add(clockSkew)) { // a user can set the annotation to any time
		signals.Woken = time.Time{}
	}
	p.lead = p.policy.lead(signals.StartUps)
	p.bounds = p.policy.boundsAt(signals.Now, p.lead)
	p.observe()
	out := p.choose()
	out.Lead = p.lead
	p.bound(&out)
	if by := out.Replicas - signals.Desired; by != 0 {
		p.state.Changes = append(slices.Clone(p.state.Changes), Change{At: signals.Now, By: by})
		if over := len(p.state.Changes) - mostChanges; over > 0 {
			p.state.Changes = p.state.Changes[over:]
		}
	}
	return out, p.state
}

// observe adds the signals to the state.
func (p *pass) observe() {
	now := p.s.Now
	p.remember()
	for i := range p.s.Engines {
		e := &p.s.Engines[i]
		p.state.Curve = p.state.Curve.observed(e.Running, e.TimePerOutputToken)
	}
	p.need, p.known = p.needs(p.evidence())
	if !p.known {
		return
	}
	whole, _ := p.needs(everything())
	p.state.IsShort = whole.low > float64(p.s.Desired)+tolerance
	sample := Sample{At: now, Need: p.need.low}
	sample.Level, sample.Expected = p.state.expect(now, p.need.low, p.lead)
	// Engines that do not answer count as full, but only up to the present number of replicas: their silence must neither
	// remove nor add replicas.
	sample.Level = math.Max(sample.Level, math.Min(p.need.high, float64(p.s.Desired)))
	horizon := max(p.window(p.policy.Up), p.window(p.policy.Down), p.policy.Up.Period, p.policy.Down.Period, 2*p.lead, 10*time.Minute)
	p.state = p.state.remember(sample, horizon)
}

// remember records since when the set is watched, has engines, and has no requests.
func (p *pass) remember() {
	now := p.s.Now
	if p.state.Since.IsZero() || p.state.Since.After(now) {
		p.state.Since = now
	}
	// After a wake, the first request reaches the engine some time after the engine is ready. So the set counts as busy
	// when its first engine is ready.
	isFirst := len(p.s.Engines) > 0 && !p.state.HasEngines
	p.rememberLoss()
	p.state.HasEngines = len(p.s.Engines) > 0
	if isFirst && p.state.Since.Before(now) || p.state.Ready.After(now) {
		p.state.Ready = now
	}
	if isFirst || p.s.busy() > 0 || p.s.hasServed() || p.s.Held > 0 || p.state.Busy.IsZero() || p.state.Busy.After(now) {
		p.state.Busy = now
	}
	if p.s.Woken.After(p.state.Busy) && !p.s.Woken.After(now) {
		p.state.Busy = p.s.Woken
	}
}

// rememberLoss records the loss of the last engine, if it had too much work. A rollout that replaces the only replica
// under load counts, too.
func (p *pass) rememberLoss() {
	if !p.state.HasEngines || len(p.s.Engines) > 0 {
		return
	}
	if p.state.IsShort && p.s.Desired > 0 {
		p.state.Lost = Loss{At: p.s.Now, Replicas: p.s.Desired}
	}
	p.state.IsShort = false
}

// window returns the window of a pace.
func (p *pass) window(pace Pace) time.Duration {
	if pace.Window < 0 {
		return p.lead
	}
	return pace.Window
}

// choose decides by demand alone, without the limits.
func (p *pass) choose() Decision {
	desired, ready := p.s.Desired, len(p.s.Engines)
	out := Decision{Replicas: desired, Need: -1, Expected: -1}
	switch {
	case desired == 0:
		return p.wake(out)
	case ready == 0:
		out.Reason, out.Message = Starting, fmt.Sprintf("none of the %d replicas is ready yet", desired)
		if p.isForgotten() {
			out.Replicas, out.Reason = 0, Withdrawn
			out.Message = fmt.Sprintf("no request arrived for %s, and no replica is ready: all replicas are deleted", p.policy.IdleAfter)
		}
		return out
	case !p.known:
		out.Reason = NoSignals
		out.Message = fmt.Sprintf("no engine reports a metric of the policy: the number of replicas stays %d", desired)
		return out
	}
	latest := p.state.Samples[len(p.state.Samples)-1]
	out.Need, out.Expected, out.Metric = latest.Need, latest.Expected, p.need.metric
	up := 0
	if p.s.Now.Sub(p.state.Since) >= p.window(p.policy.Up) {
		up = whole(p.state.least(p.s.Now, p.window(p.policy.Up)))
	}
	stays := math.Max(p.state.mostExpected(p.s.Now, steadying), p.state.most(p.s.Now, p.window(p.policy.Down)))
	down := max(1, whole(stays), min(desired, p.inFlight()))
	switch {
	case up > desired:
		return p.grow(out, up)
	case p.isIdle():
		out.Replicas, out.Reason = 0, Idle
		out.Message = fmt.Sprintf("no request was in flight for %s", p.policy.IdleAfter)
		return out
	}
	if to := p.fewer(down); to < desired {
		return p.shrink(out, to, down)
	}
	switch {
	case max(1, whole(math.Max(latest.Expected, latest.Level))) < desired:
		out.Reason = Settling
		out.Message = fmt.Sprintf("%s; replicas are deleted if the demand stays that low for %s", p.words(), p.window(p.policy.Down))
		return out
	default:
		out.Reason, out.Message = Steady, p.words()
		return out
	}
}

// mostDemand limits the demand, so that it fits an integer.
const mostDemand = 1e6

// whole returns the number of replicas for a demand. It rounds up, except for a demand that is hardly more than a whole
// number.
func whole(demand float64) int {
	demand = math.Min(demand, mostDemand)
	floor := math.Floor(demand)
	if floor >= 1 && demand-floor <= tolerance {
		return int(floor)
	}
	return int(math.Ceil(demand))
}

// isWatched reports whether the set was watched for the whole window that a removal requires.
func (p *pass) isWatched() bool {
	return p.s.Now.Sub(p.state.Since) >= p.window(p.policy.Down)
}

// isIdle reports whether the last replicas may be removed. An engine that does not answer counts as busy.
func (p *pass) isIdle() bool {
	return p.bounds.min == 0 && p.s.busy() == 0 && p.s.Held == 0 &&
		p.s.Now.Sub(p.state.Since) >= p.policy.IdleAfter && p.s.Now.Sub(p.state.Busy) >= p.policy.IdleAfter
}

// inFlight returns how many replicas the requests in flight need at their target. Without that target, it returns 1 if
// any replica is busy.
func (p *pass) inFlight() int {
	for _, target := range p.policy.Targets {
		if target.Metric == RequestsInFlight && target.Value > 0 {
			total, unknown := p.s.sum(RequestsInFlight)
			return whole(total/target.Value) + unknown
		}
	}
	return min(1, p.s.busy())
}

// isForgotten reports whether no replica is ready and none is needed any more. This is possible after a set was woken
// or created, or when its last replica must start again.
func (p *pass) isForgotten() bool {
	since := p.state.Since
	for _, at := range []time.Time{p.s.Woken, p.state.Busy} {
		if at.After(since) {
			since = at
		}
	}
	return p.isIdle() && p.s.Now.Sub(since) >= p.policy.IdleAfter+p.lead
}

func (p *pass) wake(out Decision) Decision {
	isWoken := !p.s.Woken.IsZero() && p.s.Now.Sub(p.s.Woken) < p.policy.IdleAfter
	if p.s.Held > 0 || isWoken {
		out.Replicas, out.Reason = 1, Woken
		out.Message = "a request arrived while there was no replica"
		return out
	}
	out.Reason, out.Message = AtZero, "no request is waiting, so no replica is needed"
	return out
}

func (p *pass) grow(out Decision, to int) Decision {
	out.Replicas, out.Reason, out.Message = to, DemandRose, p.words()
	if most := p.policy.Up.Most; most > 0 {
		room := max(0, most-p.state.changed(p.s.Now, p.policy.Up.Period, +1))
		if to-p.s.Desired > room {
			out.Replicas, out.Reason = p.s.Desired+room, Paced
			out.Message = fmt.Sprintf("%s; scaleUp adds at most %d in %s", p.words(), most, p.policy.Up.Period)
		}
	}
	return out
}

// fewer returns the number of replicas that remain after removals. Unready replicas have no requests, so they are
// removed without a window, but not after a mere moment without demand. Ready replicas are removed when the window is
// over, as fast as the pace allows.
func (p *pass) fewer(down int) int {
	if p.s.Now.Sub(p.state.Since) < steadying || p.s.isSilent() {
		return p.s.Desired
	}
	ready := min(len(p.s.Engines), p.s.Desired)
	to := max(ready, whole(p.state.mostExpected(p.s.Now, steadying)), min(p.s.Desired, p.inFlight()))
	if !p.isWatched() {
		return to
	}
	least := down
	if most := p.policy.Down.Most; most > 0 {
		least = max(least, ready-max(0, most-p.state.changed(p.s.Now, p.policy.Down.Period, -1)))
	}
	return min(to, least)
}

func (p *pass) shrink(out Decision, to, down int) Decision {
	out.Replicas, out.Reason, out.Message = to, DemandFell, p.words()
	switch {
	case to >= len(p.s.Engines):
		out.Reason = Withdrawn
		out.Message = fmt.Sprintf("%s; %d unready replicas are deleted", p.words(), p.s.Desired-to)
	case to > down:
		out.Reason = Paced
		out.Message = fmt.Sprintf("%s; scaleDown deletes at most %d in %s", p.words(), p.policy.Down.Most, p.policy.Down.Period)
	}
	return out
}

// bound applies the limits: the minimum, then the maximum, then the price.
func (p *pass) bound(out *Decision) {
	if out.Replicas < p.bounds.min {
		out.Replicas, out.Reason = p.bounds.min, AtMinimum
		out.Message = fmt.Sprintf("%s is %d", p.bounds.name("minReplicas"), p.bounds.min)
	}
	switch {
	case p.bounds.max == 0: // also without requests, because none would start a replica
		out.Message = p.bounds.name("maxReplicas") + " is 0"
		out.Replicas, out.Reason = 0, AtMaximum
	case out.Replicas > p.bounds.max:
		out.Message = fmt.Sprintf("%d replicas are above %s, which is %d", out.Replicas, p.bounds.name("maxReplicas"), p.bounds.max)
		out.Replicas, out.Reason = p.bounds.max, AtMaximum
	}
	most := p.policy.affordable(p.s)
	switch {
	case out.Replicas <= most:
		return
	case p.s.ReplicaPrice > 0:
		out.Message = fmt.Sprintf("%d replicas cost more than maxHourlyPrice, which pays for %d at $%.2f/h each", out.Replicas, most, p.s.ReplicaPrice)
	default:
		out.Message = fmt.Sprintf("no replica has a plan, so the price of a replica is unknown: until one has a plan, maxHourlyPrice allows %d of %d replicas", most, out.Replicas)
	}
	out.Replicas, out.Reason = most, AtPriceCap
}

func (b *bounds) name(field string) string {
	if b.schedule == "" {
		return field
	}
	return fmt.Sprintf("%s of schedule %s", field, b.schedule)
}

// words returns a description of the demand.
func (p *pass) words() string {
	latest := p.state.Samples[len(p.state.Samples)-1]
	text := fmt.Sprintf("%s is %s for each replica, with a target of %s: the demand is %.1f replicas",
		p.need.metric, p.need.metric.Format(p.need.value), p.need.metric.Format(p.need.target), latest.Need)
	if latest.Expected > latest.Need+0.05 {
		text += fmt.Sprintf(", and %.1f are expected in %s", latest.Expected, p.lead.Round(time.Second))
	}
	return text
}

// Format returns a value of a metric for users.
func (m Metric) Format(value float64) string {
	switch {
	case m == KVCacheUse:
		return fmt.Sprintf("%.0f%%", value*100)
	case m.isTime():
		return time.Duration(math.Min(value, 1e6) * float64(time.Second)).Round(time.Millisecond).String()
	default:
		return fmt.Sprintf("%.1f", value)
	}
}
