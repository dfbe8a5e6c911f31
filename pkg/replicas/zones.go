// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"cmp"
	"slices"
)

// Spread is how the replicas of a set spread over zones.
type Spread struct {
	// Zones are the allowed zones, the preferred one first. With fewer than two there is nothing to spread.
	Zones []string
	// MaxSkew is the largest allowed difference between the numbers of replicas in two zones.
	MaxSkew int
	// IsStrict: a replica waits for its zone if another zone would exceed MaxSkew.
	IsStrict bool
}

// IsOn reports whether there is something to spread.
func (s *Spread) IsOn() bool { return len(s.Zones) > 1 }

// Next returns the zone of a new replica: the one with the fewest replicas, if it is not one of those without machines
// (refused). Replicas that the rollout replaces count only among equals. Otherwise the last of them would decide where
// the new ones are.
func (s *Spread) Next(policy Policy, all []Replica, refused []string) string {
	return s.best(countZones(policy, all, ""), refused, nil)
}

// Another returns the next zone for a replica that found no machine in the tried zones; empty if no zone is left, or if
// the replica must wait. The tried zones only grow, so this ends.
func (s *Spread) Another(policy Policy, all []Replica, name string, tried, refused []string) string {
	count := countZones(policy, all, name)
	if _, _, skew := s.Extremes(count.staying); s.IsStrict && skew > s.MaxSkew { // the present zone would be too empty
		return ""
	}
	return s.best(count, refused, tried)
}

// best returns the best zone other than those already tried; empty if there is none.
func (s *Spread) best(count census, refused, tried []string) string {
	_, fewest, _ := s.Extremes(count.staying)
	rest := slices.DeleteFunc(slices.Clone(s.Zones), func(zone string) bool {
		return slices.Contains(tried, zone) || s.IsStrict && count.staying[zone]+1-count.staying[fewest] > s.MaxSkew
	})
	if len(rest) == 0 {
		return ""
	}
	return slices.MinFunc(rest, func(a, b string) int { // of equals, the first
		return cmp.Or(
			trueLast(slices.Contains(refused, a), slices.Contains(refused, b)),
			cmp.Compare(count.staying[a], count.staying[b]), cmp.Compare(count.all[a], count.all[b]),
		)
	})
}

// Count returns the number of replicas in each zone, without those that are being deleted.
func Count(all []Replica) map[string]int {
	out := map[string]int{}
	for _, replica := range all {
		if !replica.IsLeaving {
			out[replica.Zone]++
		}
	}
	return out
}

// Extremes returns the zones with the most and the fewest replicas, and the difference of these numbers.
func (s *Spread) Extremes(count map[string]int) (most, fewest string, skew int) {
	byCount := func(a, b string) int { return cmp.Compare(count[a], count[b]) }
	most, fewest = slices.MaxFunc(s.Zones, byCount), slices.MinFunc(s.Zones, byCount)
	return most, fewest, count[most] - count[fewest]
}

// census has the numbers of replicas by zone: those that stay, and all.
type census struct{ staying, all map[string]int }

// countZones counts the replicas other than the named one. Of those with a former template, the rollout replaces the ones
// that it cannot update in place, and the first one if the set has all its replicas: then a new one is surplus.
func countZones(policy Policy, all []Replica, but string) census {
	s, out := observe(policy, all), census{map[string]int{}, map[string]int{}}
	toRoll := s.toRoll()
	isReplaced := len(s.live) >= policy.Replicas
	for _, replica := range s.live {
		goes := false
		if !replica.IsCurrent && toRoll > 0 {
			goes = isReplaced || !replica.CanUpdate || s.floor() >= policy.Replicas
			isReplaced = false
			toRoll--
		}
		if replica.Name == but {
			continue
		}
		out.all[replica.Zone]++
		if !goes {
			out.staying[replica.Zone]++
		}
	}
	return out
}

// uncrowd puts the replicas of the most crowded zone first among those with the same duty. A replica's rank is how many
// of its zone are left when all the more dispensable ones of that zone are gone. So deleting the first replicas one by one
// always takes one from the zone with the most. Without zones, all replicas are in one, and keep their order.
func (s *state) uncrowd() {
	left, rank := map[string]int{}, make(map[string]int, len(s.live))
	for _, replica := range slices.Backward(s.live) {
		left[replica.Zone]++
		rank[replica.Name] = left[replica.Zone]
	}
	slices.SortStableFunc(s.live, func(a, b Replica) int {
		return cmp.Or(byDuty(a, b), cmp.Compare(rank[b.Name], rank[a.Name]))
	})
}
