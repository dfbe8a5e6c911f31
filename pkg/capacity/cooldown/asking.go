// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cooldown

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// asking has the open attempts that still lack machines, one for each Workspace.
type asking struct {
	attempts map[types.UID]probe
	// around has the same attempts by scope, in the order of their start.
	around map[refusal.Scope][]refusal.Attempt
}

// probe is an attempt, with the scopes that it is the first to request after their cooldown.
type probe struct {
	refusal.Attempt
	scopes []refusal.Scope
}

// begin adds the attempt of a Workspace in place of its previous one.
func (a *asking) begin(attempt refusal.Attempt, first []refusal.Scope) {
	if known, ok := a.attempts[attempt.Workspace]; ok {
		if known.Offering == attempt.Offering && known.Started.Equal(attempt.Started) {
			return
		}
		first = append(slices.Clone(known.scopes), first...)
		slices.SortFunc(first, func(a, b refusal.Scope) int { return cmp.Compare(a.String(), b.String()) })
		first = slices.Compact(first)
	}
	a.forget(attempt.Workspace)
	if a.attempts == nil {
		a.attempts, a.around = map[types.UID]probe{}, map[refusal.Scope][]refusal.Attempt{}
	}
	a.attempts[attempt.Workspace] = probe{attempt, first}
	for _, scope := range attempt.Offering.Scopes() {
		at, _ := slices.BinarySearchFunc(a.around[scope], attempt, inOrder)
		a.around[scope] = slices.Insert(a.around[scope], at, attempt)
	}
}

func inOrder(a, b refusal.Attempt) int {
	return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Workspace, b.Workspace))
}

// end removes the attempt of a Workspace, unless it began later than the attempt that ended. Times in a status are in
// whole seconds.
func (a *asking) end(workspace types.UID, started time.Time) []refusal.Scope {
	known, ok := a.attempts[workspace]
	if !ok || started.Before(known.Started.Truncate(time.Second)) {
		return nil
	}
	return a.forget(workspace)
}

// forget removes the attempt of a Workspace, and returns the scopes of its probe.
func (a *asking) forget(workspace types.UID) []refusal.Scope {
	known, ok := a.attempts[workspace]
	if !ok {
		return nil
	}
	delete(a.attempts, workspace)
	for _, scope := range known.Offering.Scopes() {
		at, isThere := slices.BinarySearchFunc(a.around[scope], known.Attempt, inOrder)
		if isThere {
			a.around[scope] = slices.Delete(a.around[scope], at, at+1)
		}
		if len(a.around[scope]) == 0 {
			delete(a.around, scope)
		}
	}
	return known.scopes
}

// requestedSince returns the latest time at which another Workspace began to request the scope after its cooldown; false
// if none did.
func (a *asking) requestedSince(who refusal.Asker, unproven refusal.Cooldown) (time.Time, bool) {
	for _, attempt := range slices.Backward(a.around[unproven.Scope]) {
		if attempt.Started.Before(unproven.Until) {
			break
		}
		isOfAudience := unproven.Namespace == "" || attempt.Namespace == unproven.Namespace
		if attempt.Workspace != who.Workspace && isOfAudience {
			return attempt.Started, true
		}
	}
	return time.Time{}, false
}
