// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas maintains a number of equal Workspaces, and rolls out changes of their template.
//
// It decides which replicas a set creates, updates and deletes, from the state at one moment. It has no memory, so a
// crash between two writes loses nothing. It must not know the model of a replica, or how it gets its machines.
package replicas

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// mostCreated is the largest number of replicas to create in one decision. The next decision follows when they exist.
const mostCreated = 16

// samePrice is the part of a price that is too small to outrank load: deleting a busy replica interrupts its requests.
const samePrice = 0.05

// Policy is the desired state of a set.
type Policy struct {
	// Replicas is the desired number.
	Replicas int
	// OnDelete: existing replicas keep their former template until somebody deletes them.
	OnDelete bool
	// MaxUnavailable is how many replicas a rollout may make unready at once.
	MaxUnavailable int
	// Partition is how many replicas keep a former template.
	Partition int
	// CanRestore: the previous template is known, so new replicas can get it.
	CanRestore bool
	// IsHeld: the rollout goes no further now. New replicas get the previous template, if it is known.
	IsHeld bool
	// IsRollback: the current template is a former one, restored. No replica may keep the failed template.
	IsRollback bool
	// NodeLimit is the largest number of machines of all replicas; 0 means no limit.
	NodeLimit int
}

// Kept returns how many replicas keep a former template.
func (p *Policy) Kept() int {
	if p.IsRollback {
		return 0
	}
	return min(p.Partition, p.Replicas)
}

// Replica is one existing replica.
type Replica struct {
	Name    string
	Created time.Time
	// IsLeaving: it is being deleted, and may still have its machines.
	IsLeaving bool
	// IsCurrent: it has the current template.
	IsCurrent bool
	// IsStray: it has neither the current template nor the previous one, because a rollout in between was given up.
	IsStray bool
	// IsReady: it answers requests, with the template that it has.
	IsReady bool
	// IsProven: it has been ready for as long as the set requires before a rollout continues.
	IsProven bool
	// CanUpdate: the current template can replace its template in place.
	CanUpdate bool
	// StaysReady: an update in place does not stop its answers.
	StaysReady bool
	// LacksMachine: it waits for a machine that is not available now.
	LacksMachine bool
	// GainsByDeletion: the deletion of another replica may free machines for it.
	GainsByDeletion bool
	// IsFailing: its template has no plan, or its engine fails and neither a restart nor another machine helps.
	IsFailing bool
	// Starting is since when it has its machines, if it does not answer; zero if it answers or has none.
	Starting time.Time
	// IsSteady: it is one of the replicas that are to use no spot machines (spec.onDemandReplicas).
	IsSteady bool
	// Zone in which it runs, or is to run; empty if the set does not spread over zones, or the zone is unknown.
	Zone string
	// Load is its number of running and waiting requests, if IsLoadKnown.
	Load        float64
	IsLoadKnown bool
	// HourlyPrice of its plan, in USD; 0 if it is unknown.
	HourlyPrice float64
	// Nodes is the number of its machines; 0 means that it has no plan yet.
	Nodes int
}

// Decision holds the next steps.
type Decision struct {
	// Create is how many replicas to create. Of these, Restore get the previous template, and the others get the
	// current one.
	Create, Restore int
	// Update and Delete name existing replicas.
	Update, Delete []string
	// IsRolling: replicas with a former template are to get the current one.
	IsRolling bool
	// IsLimited: the limit of machines prevents the set from creating a replica.
	IsLimited bool
}

// IsIdle reports whether there is nothing to do.
func (d Decision) IsIdle() bool {
	return d.Create == 0 && len(d.Update) == 0 && len(d.Delete) == 0
}

// Decide returns the next steps. They are few: the next decision starts from their result.
func Decide(policy Policy, all []Replica) Decision {
	s := observe(policy, all)
	d := Decision{IsRolling: s.isRolling}
	switch excess := len(s.live) - policy.Replicas; {
	case excess > s.surge():
		for _, victim := range s.live[:excess-s.surge()] {
			d.Delete = append(d.Delete, victim.Name)
		}
	case excess > 0:
		d.Delete = s.retired()
	case excess < 0:
		room := s.room()
		d.Create = max(0, min(-excess, room, mostCreated))
		d.Restore = min(d.Create, s.toRestore())
		d.IsLimited = room < -excess
		if d.Create == 0 && s.isRolling {
			s.roll(&d)
		}
	case s.isRolling:
		s.roll(&d)
	}
	return d
}

// state is the input of a decision.
type state struct {
	policy Policy
	all    []Replica
	// live are the replicas that are not being deleted, the most dispensable first.
	live  []Replica
	ready int
	// updating is the number of unready replicas with the current template. current is the number of all with it.
	updating, current int
	isRolling         bool
}

func observe(policy Policy, all []Replica) state {
	s := state{policy: policy, all: all}
	for _, replica := range all {
		if replica.IsLeaving {
			continue
		}
		s.live = append(s.live, replica)
		if replica.IsReady {
			s.ready++
		}
		if replica.IsCurrent {
			s.current++
		}
		if replica.IsCurrent && (!replica.IsReady || !replica.IsProven) {
			s.updating++
		}
	}
	levelPrices(s.live)
	slices.SortFunc(s.live, bySparing)
	s.uncrowd()
	s.isRolling = s.toRoll() > 0
	s.spareKept()
	return s
}

// levelPrices makes almost equal prices equal, by raising the lower ones. A comparison of two replicas with a tolerance
// would not be an order: of three prices, the outer ones may differ, though neither differs from the middle one.
func levelPrices(live []Replica) {
	slices.SortFunc(live, func(a, b Replica) int { return cmp.Compare(b.HourlyPrice, a.HourlyPrice) })
	for i := range live {
		if i > 0 && live[i].HourlyPrice > live[i-1].HourlyPrice*(1-samePrice) {
			live[i].HourlyPrice = live[i-1].HourlyPrice
		}
	}
}

// bySparing puts the most dispensable replica first: unready ones, then those with a former template and strays among them,
// then those that may use spot machines, then the dearest, then the least busy, then the newest. The prices must be level.
func bySparing(a, b Replica) int {
	return cmp.Or(
		byDuty(a, b),
		cmp.Compare(b.HourlyPrice, a.HourlyPrice), cmp.Compare(a.load(), b.load()),
		b.Created.Compare(a.Created), strings.Compare(b.Name, a.Name),
	)
}

// byDuty is the part of bySparing that comes before the balance of zones.
func byDuty(a, b Replica) int {
	return cmp.Or(
		trueLast(a.IsReady, b.IsReady), trueLast(a.IsCurrent, b.IsCurrent), trueLast(!a.IsStray, !b.IsStray),
		trueLast(a.IsSteady, b.IsSteady),
	)
}

// spareKept puts replicas with the current template before others that are as ready, if there are more of them than a
// partition admits. Otherwise, scaling down would delete the replicas that keep a former template. A rollout that is held
// keeps one of these.
func (s *state) spareKept() {
	kept, most := s.policy.Kept(), s.policy.Replicas
	if s.policy.IsHeld {
		kept, most = max(1, kept), most+s.surge()
	}
	excess, order := s.current-(most-kept), map[string]int{}
	if kept == 0 || excess <= 0 {
		return
	}
	for _, replica := range s.live {
		if replica.IsCurrent && excess > 0 {
			excess--
			order[replica.Name] = -1
		}
	}
	slices.SortStableFunc(s.live, func(a, b Replica) int {
		return cmp.Or(trueLast(a.IsReady, b.IsReady), cmp.Compare(order[a.Name], order[b.Name]))
	})
}

// load returns the number of requests. A replica with an unknown load may have many.
func (r *Replica) load() float64 {
	if !r.IsLoadKnown {
		return math.Inf(1)
	}
	return r.Load
}

func trueLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// toRoll returns how many more replicas are to get the current template.
func (s *state) toRoll() int {
	if s.policy.OnDelete || s.policy.Replicas == 0 {
		return 0
	}
	return max(0, len(s.live)-s.current-s.policy.Kept())
}

// toRestore returns how many more replicas are to have the previous template, if there is one.
func (s *state) toRestore() int {
	switch {
	case !s.policy.CanRestore:
		return 0
	case s.policy.IsHeld:
		return s.policy.Replicas
	}
	return max(0, s.policy.Kept()-(len(s.live)-s.current))
}

// surge returns how many replicas may exist above the desired number: one during a rollout.
func (s *state) surge() int {
	if s.isRolling {
		return 1
	}
	return 0
}

// floor returns how many replicas a rollout leaves ready. A rollout never takes down the last ready one.
func (s *state) floor() int {
	return max(1, s.policy.Replicas-s.policy.MaxUnavailable)
}

// canSpare reports whether a rollout may take a replica down.
func (s *state) canSpare(replica Replica) bool {
	return !replica.IsReady || s.ready > s.floor()
}

// retired returns the replica with a former template that the surplus replica replaces. There is none until all
// replicas with the current template are ready. But if one of these lacks a machine, deleting a dispensable replica may
// free one. It frees none if the machine type is not sold, or if a month's budget is spent.
func (s *state) retired() []string {
	i := slices.IndexFunc(s.live, func(r Replica) bool { return !r.IsCurrent })
	if i < 0 || s.policy.IsHeld {
		return nil
	}
	victim := s.live[i]
	gains := slices.ContainsFunc(s.live, func(r Replica) bool { return r.IsCurrent && !r.IsReady && r.GainsByDeletion })
	if s.updating == 0 || gains && s.canSpare(victim) || s.policy.IsRollback && !victim.IsReady {
		return []string{victim.Name}
	}
	return nil
}

// roll gives the current template to further replicas. It updates them in place if enough stay ready, and otherwise
// creates one surplus replica. It stops while too many replicas are unready.
func (s *state) roll(d *Decision) {
	if s.policy.IsHeld {
		return
	}
	left, mayUpdate := s.toRoll(), max(1, s.policy.MaxUnavailable)-s.updating
	for _, replica := range s.live {
		if replica.IsCurrent {
			continue
		}
		isFree := s.policy.IsRollback && !replica.IsReady // it serves no requests, and the template has worked before
		if left == 0 || mayUpdate <= 0 && !isFree {
			return
		}
		if !replica.CanUpdate || !replica.StaysReady && !s.canSpare(replica) {
			if d.IsIdle() {
				s.replace(replica, d)
			}
			return
		}
		d.Update = append(d.Update, replica.Name)
		left--
		if !isFree {
			mayUpdate--
		}
		if replica.IsReady && !replica.StaysReady {
			s.ready--
		}
	}
}

// replace creates a surplus replica that will replace the given one. If the limit of machines leaves no room, it
// deletes the given one first, if that is dispensable.
func (s *state) replace(replica Replica, d *Decision) {
	switch {
	case len(s.all) > len(s.live): // the machines of those that are leaving are not free yet
	case s.room() > 0:
		d.Create = 1
	case s.canSpare(replica):
		d.Delete = []string{replica.Name}
	default:
		d.IsLimited = true
	}
}

// room returns how many replicas can be created within the limit of machines. Until a plan shows how many machines a
// replica takes, there is room for only one.
func (s *state) room() int {
	if s.policy.NodeLimit == 0 {
		return math.MaxInt
	}
	each := 0
	for _, replica := range s.all {
		each = max(each, replica.Nodes)
	}
	if each == 0 {
		return max(0, 1-len(s.all))
	}
	held := 0
	for _, replica := range s.all {
		if replica.Nodes == 0 {
			held += each
		}
		held += replica.Nodes
	}
	return max(0, (s.policy.NodeLimit-held)/each)
}
