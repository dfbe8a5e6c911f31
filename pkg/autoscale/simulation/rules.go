// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// Ours is the rule of package autoscale.
type Ours struct {
	Policy autoscale.Policy
	state  autoscale.State
	// Last is the last decision.
	Last autoscale.Decision
}

// Replicas implements Scaler.
func (o *Ours) Replicas(signals autoscale.Signals) int {
	o.Last, o.state = autoscale.Decide(o.Policy, signals, o.state)
	return o.Last.Replicas
}

// Fixed is a rule that keeps a number of replicas.
type Fixed int

// Replicas returns the number.
func (f Fixed) Replicas(autoscale.Signals) int { return int(f) }

// Ratio scales like a HorizontalPodAutoscaler: the number of ready replicas times the mean of a metric, divided by its
// target. KEDA creates a HorizontalPodAutoscaler, so both rules are a Ratio with different settings.
type Ratio struct {
	Metric   autoscale.Metric
	Target   float64
	Min, Max int
	// Up and Down limit the changes in each direction.
	Up, Down Steps

	wants   []want
	changes []autoscale.Change
}

// Steps limit the changes in one direction: by the stabilization window, and by the change in a period.
type Steps struct {
	Window, Period time.Duration
	// Pods and Share (of the replicas at the start of the period) limit the change; the larger one counts. If both are 0,
	// no change is possible.
	Pods  int
	Share float64
}

type want struct {
	at time.Time
	n  int
}

// HPA returns the rule of a HorizontalPodAutoscaler with its default behaviour: up by the larger of 4 and 100 % in 15 s,
// down after 5 minutes (kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale).
func HPA(metric autoscale.Metric, target float64, least, most int) *Ratio {
	return &Ratio{
		Metric: metric, Target: target, Min: max(1, least), Max: most,
		Up:   Steps{Period: 15 * time.Second, Pods: 4, Share: 1},
		Down: Steps{Window: 5 * time.Minute, Period: 15 * time.Second, Share: 1},
	}
}

// KEDA returns the rule of KAITO's scaler for KEDA: waiting requests, up by one in 5 minutes after one minute, down by
// one in 10 minutes after 5 minutes.
func KEDA(threshold float64, least, most int) *Ratio {
	return &Ratio{
		Metric: autoscale.WaitingRequests, Target: threshold, Min: max(1, least), Max: most,
		Up:   Steps{Window: time.Minute, Period: 5 * time.Minute, Pods: 1},
		Down: Steps{Window: 5 * time.Minute, Period: 10 * time.Minute, Pods: 1},
	}
}

// Replicas implements Scaler.
func (r *Ratio) Replicas(signals autoscale.Signals) int {
	now, wanted := signals.Now, r.wanted(&signals)
	r.wants = append(r.wants, want{now, wanted})
	for len(r.wants) > 0 && now.Sub(r.wants[0].at) > max(r.Up.Window, r.Down.Window) {
		r.wants = r.wants[1:]
	}
	up, down := wanted, wanted
	for _, w := range r.wants {
		if now.Sub(w.at) <= r.Up.Window {
			up = min(up, w.n)
		}
		if now.Sub(w.at) <= r.Down.Window {
			down = max(down, w.n)
		}
	}
	desired := signals.Desired
	switch {
	case up > desired:
		desired = min(up, desired+r.room(&r.Up, now, desired, +1))
	case down < desired:
		desired = max(down, desired-r.room(&r.Down, now, desired, -1))
	}
	desired = min(max(desired, r.Min), r.Max)
	if by := desired - signals.Desired; by != 0 {
		r.changes = append(r.changes, autoscale.Change{At: now, By: by})
	}
	return desired
}

// wanted returns the number of replicas for the ratio. If the mean is within a tenth of the target, the number does not
// change.
func (r *Ratio) wanted(signals *autoscale.Signals) int {
	ready := len(signals.Engines)
	if ready == 0 {
		return signals.Desired
	}
	sum := 0.0
	for i := range signals.Engines {
		e := &signals.Engines[i]
		switch r.Metric {
		case autoscale.WaitingRequests:
			sum += e.Waiting
		case autoscale.KVCacheUse:
			sum += e.KVCacheUse
		default:
			sum += e.Running + e.Waiting
		}
	}
	ratio := sum / float64(ready) / r.Target
	if math.Abs(ratio-1) <= 0.1 {
		return signals.Desired
	}
	return int(math.Ceil(math.Min(ratio*float64(ready), 1e6)))
}

// room returns how many replicas may still change in this period.
func (r *Ratio) room(s *Steps, now time.Time, desired, sign int) int {
	changed := 0
	for _, c := range r.changes {
		if now.Sub(c.At) < s.Period && c.By*sign > 0 {
			changed += c.By * sign
		}
	}
	start := desired - sign*changed
	most := max(s.Pods, int(math.Ceil(s.Share*float64(start))))
	return max(0, most-changed)
}
