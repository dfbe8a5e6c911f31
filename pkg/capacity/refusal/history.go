// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const (
	// historySize is how many refusals of a history are kept individually: among these, later calls may insert
	// refusals in any order. Older refusals are kept only as their resulting cooldowns.
	historySize = 32
	// confirmWithin: if two Workspaces of a namespace make the same guess within this time, it counts for the whole
	// namespace.
	confirmWithin = time.Hour
)

// history has the refusals of one scope, of any capacity type, for one audience.
type history struct {
	// needsTwo is set if a refusal counts only once two Workspaces had it.
	needsTwo bool
	// recent are the latest refusals, ordered by their end. base is the result of all earlier refusals, and folded is
	// the last of them.
	recent   []Attempt
	base     tally
	folded   Attempt
	isFolded bool
	// now is the result of all refusals.
	now tally
}

// tally is the result of refusals, by capacity type.
type tally struct {
	cooldowns map[v1beta1.CapacityType]Cooldown
	// guesses are the latest guesses of two different Workspaces, the newer first.
	guesses map[v1beta1.CapacityType][2]guess
}

type guess struct {
	workspace types.UID
	at        time.Time
}

// proofs returns until when refusals with a cause and a capacity type have been disproved; zero means never.
type proofs func(cause Cause, capacityType v1beta1.CapacityType) time.Time

// add inserts a refusal, and reports whether it is new.
func (h *history) add(a Attempt) bool {
	if h.isFolded && compareAttempts(a, h.folded) <= 0 {
		return false
	}
	at, isKnown := slices.BinarySearchFunc(h.recent, a, compareAttempts)
	if isKnown {
		return false
	}
	h.recent = slices.Insert(h.recent, at, a)
	return true
}

// settle recomputes the result of the refusals.
func (h *history) settle(disproved proofs) {
	for len(h.recent) > historySize {
		h.base = h.base.without(disproved)
		h.base.take(h.recent[0], h.needsTwo, disproved)
		h.folded, h.isFolded = h.recent[0], true
		h.recent = slices.Delete(h.recent, 0, 1)
	}
	h.now = h.base.without(disproved)
	for _, a := range h.recent {
		h.now.take(a, h.needsTwo, disproved)
	}
}

// without returns a copy without disproved refusals.
func (o tally) without(disproved proofs) tally {
	out := tally{cooldowns: maps.Clone(o.cooldowns), guesses: maps.Clone(o.guesses)}
	maps.DeleteFunc(out.cooldowns, func(capacityType v1beta1.CapacityType, known Cooldown) bool {
		return !known.refusedAt.After(disproved(known.Cause, capacityType))
	})
	return out
}

// take adds the next refusal to the result.
func (o *tally) take(a Attempt, needsTwo bool, disproved proofs) {
	if needsTwo && !o.confirms(a, disproved(a.Cause, a.Scope.CapacityType)) {
		return
	}
	known := o.of(a.Scope, a.Scope.CapacityType)
	if !a.Guessed {
		known = o.against(a)
	}
	capacityType := known.Scope.CapacityType
	if !a.Ended.After(disproved(a.Cause, capacityType)) {
		return
	}
	known = known.refused(a)
	known.Scope.CapacityType = capacityType
	if o.cooldowns == nil {
		o.cooldowns = map[v1beta1.CapacityType]Cooldown{}
	}
	o.cooldowns[capacityType] = known
}

// confirms records a guess, and reports whether another Workspace has made the same guess lately that nothing has
// disproved since.
func (o *tally) confirms(a Attempt, disproved time.Time) bool {
	known := o.guesses[a.Scope.CapacityType]
	if known[0].workspace != a.Workspace {
		known[1] = known[0]
	}
	known[0] = guess{a.Workspace, a.Ended}
	if o.guesses == nil {
		o.guesses = map[v1beta1.CapacityType][2]guess{}
	}
	o.guesses[a.Scope.CapacityType] = known
	return known[1].at.After(disproved) && a.Ended.Sub(known[1].at) <= confirmWithin
}

// against returns the cooldown that a refusal prolongs. A message that does not distinguish spot machines counts for
// all capacity types. Once that cooldown has passed, it counts only for the requested type: otherwise the other type
// would never be tried.
func (o *tally) against(a Attempt) Cooldown {
	all, one := o.of(a.Scope, a.Scope.CapacityType), o.of(a.Scope, a.Offering.CapacityType)
	switch {
	case a.Scope.CapacityType != Any || !all.isRemembered(a.Ended) && !one.isRemembered(a.Ended):
		return all
	case one.isRemembered(a.Ended) && !one.Until.Before(all.Until):
		return one
	case !a.Started.Before(all.Until):
		all.Scope.CapacityType = a.Offering.CapacityType
		return all
	default:
		return all
	}
}

// of returns the cooldown of a capacity type.
func (o *tally) of(scope Scope, capacityType v1beta1.CapacityType) Cooldown {
	known := o.cooldowns[capacityType]
	known.Scope = scope
	known.Scope.CapacityType = capacityType
	return known
}
