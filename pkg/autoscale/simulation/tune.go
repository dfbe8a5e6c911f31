// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// Choice has the targets that a Tuner chooses.
type Choice struct {
	// InFlight is the target of RequestsInFlight.
	InFlight int
	// CacheUse is the target of KVCacheUse in percent; noCacheUse means none.
	CacheUse int
}

// noCacheUse is a target of KVCacheUse that is left out, because it hardly has an effect.
const noCacheUse = 99

// Targets returns the targets of a policy with this choice.
func (c Choice) Targets() []autoscale.Target {
	out := []autoscale.Target{{Metric: autoscale.RequestsInFlight, Value: float64(c.InFlight)}}
	if c.CacheUse < noCacheUse {
		out = append(out, autoscale.Target{Metric: autoscale.KVCacheUse, Value: float64(c.CacheUse) / 100})
	}
	return out
}

// Trial is a policy and its result on a trace.
type Trial struct {
	Policy   autoscale.Policy
	Result   *Result
	Attained float64
}

// Tuner searches for the targets of the cheapest policy that reaches a goal on a trace. The other fields of the policy
// stay. The same arguments give the same targets.
type Tuner struct {
	Setting Setting
	Policy  autoscale.Policy
	Trace   []Request
	Goal    Goal
	// HasCache: KVCacheUse is a signal of its own, not the share of the busy slots.
	HasCache bool
	// Most is the largest number of simulations.
	Most int
	// Progress, if it is set, is called before each simulation, with the number of finished ones.
	Progress func(done int)

	tried map[Choice]bool
	best  Trial
	// at is the choice of the best trial, or the one closest to the present targets.
	at Choice
	n  int
}

// reserve is the share of the late answers a goal allows that the search leaves unused. Targets that just reach a goal
// miss it on other requests.
const reserve = 0.2

// Tune returns the trial of the present targets, and the best one. The best trial reaches the goal with the reserve for the
// fewest dollars, or else just reaches it for the fewest dollars, or else has the most requests in time. It never costs more
// than present targets that reach the goal.
func (t *Tuner) Tune() (present, best Trial) {
	t.tried, t.best, t.n = map[Choice]bool{}, Trial{}, 0
	t.simulate(t.Policy)
	present = t.best
	t.at = t.closest(t.Policy.Targets)
	t.grid()
	// Each step is a share of the target for requests. The largest one is ten points of the target for the cache.
	for _, step := range []float64{0.16, 0.08, 0.04, 0.02} {
		for t.refine(step) {
		}
	}
	if present.Attained >= t.Goal.Share && present.Result.Dollars < t.best.Result.Dollars {
		return present, present
	}
	return present, t.best
}

// grid tries targets from a fifth of a full replica's requests up, each with some limits of the cache.
func (t *Tuner) grid() {
	full := t.full()
	for _, cache := range []int{60, 75, 90} {
		for _, part := range []float64{0.2, 0.35, 0.5, 0.7, 0.9, 1.2} {
			t.try(Choice{InFlight: int(math.Round(full * part)), CacheUse: cache})
		}
	}
}

// full returns how many requests of mean length run at once on a replica.
func (t *Tuner) full() float64 {
	mean := job{Request: Mean(t.Trace)}
	return math.Max(1, math.Min(float64(t.Setting.Speed.Seats), t.Setting.Speed.CacheTokens/math.Max(mean.cache(), 1)))
}

// closest returns the choice that is closest to some targets. Its target for requests is above a full replica if there is
// none.
func (t *Tuner) closest(targets []autoscale.Target) Choice {
	out := Choice{InFlight: int(math.Ceil(1.2 * t.full())), CacheUse: noCacheUse}
	for _, target := range targets {
		switch target.Metric {
		case autoscale.RequestsInFlight:
			out.InFlight = int(math.Round(math.Min(target.Value, 1e6)))
		case autoscale.KVCacheUse:
			out.CacheUse = int(math.Round(target.Value * 100))
		}
	}
	return out
}

// refine tries the neighbours of the best choice. It reports whether one is better.
func (t *Tuner) refine(step float64) bool {
	from := t.at
	requests := max(1, int(math.Round(step*float64(from.InFlight))))
	points := max(1, int(math.Round(step*60)))
	for _, more := range []int{requests, 0, -requests} {
		for _, cache := range []int{0, points, -points} {
			t.try(Choice{InFlight: from.InFlight + more, CacheUse: from.CacheUse + cache})
		}
	}
	return t.at != from
}

// try simulates a choice, unless it was tried before or the search has used its simulations.
func (t *Tuner) try(choice Choice) {
	choice.InFlight, choice.CacheUse = max(1, choice.InFlight), min(max(1, choice.CacheUse), noCacheUse)
	if !t.HasCache {
		choice.CacheUse = noCacheUse
	}
	if t.tried[choice] || t.n >= t.Most {
		return
	}
	t.tried[choice] = true
	policy := t.Policy
	policy.Targets = choice.Targets()
	if t.simulate(policy) {
		t.at = choice
	}
}

// simulate reports whether a policy is better than the best one yet, and keeps it if so.
func (t *Tuner) simulate(policy autoscale.Policy) bool {
	if t.Progress != nil {
		t.Progress(t.n)
	}
	t.n++
	next := Try(t.Setting, t.Trace, policy, t.Goal)
	if t.best.Result != nil && !next.isBetter(&t.best, t.Goal.Share) {
		return false
	}
	t.best = next
	return true
}

// Try simulates a policy, from its initial replicas on.
func Try(setting Setting, trace []Request, policy autoscale.Policy, goal Goal) Trial {
	result := Run(setting.For(&policy, trace), trace, &Ours{Policy: policy})
	return Trial{Policy: policy, Result: result, Attained: goal.Attained(result)}
}

// isBetter compares trials by how far they reach a goal, and then by their costs. Of two trials that miss the goal, the
// one with more requests in time is better.
func (t *Trial) isBetter(than *Trial, goal float64) bool {
	mine, others := t.reaches(goal), than.reaches(goal)
	switch {
	case mine != others:
		return mine > others
	case mine > 0:
		return t.Result.Dollars < than.Result.Dollars
	default:
		return t.Attained > than.Attained
	}
}

// reaches returns 2 if the goal is reached with the reserve, 1 if it is just reached, and 0 if it is missed.
func (t *Trial) reaches(goal float64) int {
	switch {
	case t.Attained >= 1-(1-goal)*(1-reserve):
		return 2
	case t.Attained >= goal:
		return 1
	default:
		return 0
	}
}
