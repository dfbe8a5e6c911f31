// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"math"
	"slices"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// Goal is a share of requests whose first token must arrive within a time.
type Goal struct {
	TTFT  time.Duration
	Share float64
}

// Attained returns the share of requests within the goal's time.
func (g Goal) Attained(result *Result) float64 {
	if len(result.TTFT) == 0 {
		return 1
	}
	count := 0
	for _, ttft := range result.TTFT {
		if ttft <= g.TTFT.Seconds() {
			count++
		}
	}
	return float64(count) / float64(len(result.TTFT))
}

// slot is the resolution of a schedule, in seconds.
const slot = 60

// schedule has the number of replicas that must be ready in each slot.
type schedule struct {
	ready []int
	start time.Time
	// ahead is the time of a start-up, in slots.
	ahead int
}

// Replicas requests each replica one start-up time before its slot. It keeps a replica that is needed again before
// another could start.
func (s *schedule) Replicas(signals autoscale.Signals) int {
	from := int(signals.Now.Sub(s.start).Seconds()) / slot
	out := 0
	if from >= len(s.ready) {
		out = s.ready[len(s.ready)-1] // after the last slot, until the last answer
	}
	for i := from; i <= from+s.ahead && i < len(s.ready); i++ {
		out = max(out, s.ready[max(i, 0)])
	}
	return out
}

// Clairvoyant searches for the cheapest schedule of replicas that reaches a goal. The search sees the whole trace. It
// starts from the load's schedule for replicas that serve each requests at once. A cheaper schedule may exist, but none
// is cheaper than WorkBound. Clairvoyant returns false if it finds no schedule that reaches the goal.
func Clairvoyant(setting Setting, trace []Request, goal Goal, each float64, most int) (*Result, bool) {
	s := search{Setting: setting, trace: trace, goal: goal, most: most, load: loadOf(&setting.Speed, trace, each)}
	for _, smoothing := range []int{1, 3, 7, 15} {
		s.smoothed(smoothing)
	}
	s.constant()
	if s.best == nil {
		return nil, false
	}
	s.trim()
	return s.best, true
}

// search is a search for a schedule.
type search struct {
	Setting
	trace []Request
	goal  Goal
	most  int
	// load is the demand of each slot, in replicas.
	load  []float64
	best  *Result
	ready []int
}

// loadOf returns how many replicas the requests of each slot keep busy, with each requests on a replica.
func loadOf(speed *Speed, trace []Request, each float64) []float64 {
	slots := int(trace[len(trace)-1].At)/slot + 1
	out := make([]float64, slots)
	for _, r := range trace {
		from, service := r.At, speed.ServiceTime(r, each)
		for left := service; left > 0; {
			i := int(from) / slot
			if i >= slots {
				break
			}
			part := math.Min(left, float64((i+1)*slot)-from)
			out[i] += part / slot / each
			from, left = from+part, left-part
		}
	}
	return out
}

// try simulates a schedule, and keeps it if it is the cheapest one yet that reaches the goal. Every request must get an
// answer, even if it is late.
func (s *search) try(ready []int) bool {
	ahead := int(math.Ceil(s.StartUp.Seconds() / slot))
	setting := s.Setting
	setting.Interval = slot * time.Second
	setting.Initial = 0
	for _, n := range ready[:min(len(ready), ahead+1)] {
		setting.Initial = max(setting.Initial, n)
	}
	result := Run(setting, s.trace, &schedule{ready: ready, start: s.Start, ahead: ahead})
	isLost := slices.ContainsFunc(result.TTFT, func(ttft float64) bool { return math.IsInf(ttft, 0) })
	if isLost || s.goal.Attained(result) < s.goal.Share {
		return false
	}
	if s.best == nil || result.Dollars < s.best.Dollars {
		s.best, s.ready = result, slices.Clone(ready)
	}
	return true
}

// smoothed tries schedules that are the load, averaged over some slots, times a factor. It searches for the smallest
// factor that reaches the goal.
func (s *search) smoothed(slots int) {
	at := func(factor float64) []int {
		ready := make([]int, len(s.load))
		for i := range s.load {
			from, to := max(0, i-slots/2), min(len(s.load), i+slots/2+1)
			sum := 0.0
			for _, load := range s.load[from:to] {
				sum += load
			}
			ready[i] = min(s.most, int(math.Ceil(factor*sum/float64(to-from)-1e-9)))
		}
		return ready
	}
	low, high := 0.4, 2.5
	if !s.try(at(high)) {
		return
	}
	for range 7 {
		middle := (low + high) / 2
		if s.try(at(middle)) {
			high = middle
		} else {
			low = middle
		}
	}
}

// constant searches for the smallest constant number that reaches the goal.
func (s *search) constant() {
	low, high := 0, s.most
	at := func(n int) []int { return slices.Repeat([]int{n}, len(s.load)) }
	if !s.try(at(high)) {
		return
	}
	for high-low > 1 {
		middle := (low + high) / 2
		if s.try(at(middle)) {
			high = middle
		} else {
			low = middle
		}
	}
}

// trim removes a replica from one part of the best schedule after another, if the goal is still reached: first from
// long parts, then from short ones.
func (s *search) trim() {
	if s.ready == nil {
		return
	}
	for _, parts := range []int{4, 12, 36} {
		length := max(1, (len(s.ready)+parts-1)/parts)
		for from := 0; from < len(s.ready); from += length {
			next := slices.Clone(s.ready)
			for i := from; i < min(from+length, len(next)); i++ {
				next[i] = max(0, next[i]-1)
			}
			s.try(next)
		}
	}
}

// WorkBound returns a price in USD that no schedule undercuts: the time to generate all output tokens on replicas that
// are always full and never start. It is the same for all goals.
func WorkBound(setting Setting, trace []Request) float64 {
	speed := &setting.Speed
	seconds := 0.0
	best := math.Inf(1)
	for n := 1; n <= speed.Seats; n++ {
		best = math.Min(best, speed.perToken(float64(n))/float64(n))
	}
	for _, r := range trace {
		seconds += float64(r.Output) * best
	}
	return seconds / 3600 * setting.ReplicaPrice
}

// For returns the setting with the initial replicas of a policy, if there are none yet: as many as the requests of the
// first quarter of an hour need.
func (s Setting) For(policy *autoscale.Policy, trace []Request) Setting {
	if s.Initial > 0 {
		return s
	}
	load := loadOf(&s.Speed, trace, s.Speed.Each(policy))
	load = load[:min(len(load), 15)]
	sum := 0.0
	for _, part := range load {
		sum += part
	}
	needed := int(math.Ceil(sum / float64(len(load))))
	s.Initial = min(max(needed, policy.Min, 1), policy.Max)
	return s
}

// Percentiles returns for each share the value that this share of all values does not exceed.
func Percentiles(values []float64, shares ...float64) []float64 {
	sorted := slices.Sorted(slices.Values(values))
	out := make([]float64, len(shares))
	for i, share := range shares {
		rank := int(math.Ceil(share*float64(len(sorted)))) - 1
		out[i] = sorted[min(max(rank, 0), len(sorted)-1)]
	}
	return out
}
