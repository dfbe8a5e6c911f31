// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ledger tracks the spending of all Workspaces under the administrator's ceilings. The controller reserves
// money in the ledger before it requests machines. The ledger refuses if the machines would exceed a ceiling.
//
// The existing machines, each with its price, are the source of truth. The ledger itself remembers only grants whose
// machines are not in the cache yet, so a restart loses nothing. It must not depend on plans or on the reaction to a
// refusal.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/lookup"
)

// bridge is how long a grant counts without its machine in the cache. It is longer than the pass that creates the
// machine. After that the ledger reads machines from the API server.
const bridge = 90 * time.Second

// tolerance is the rounding error of a sum, in USD per hour.
const tolerance = 1e-6

// Ceilings are limits in USD per hour; 0 means no limit.
type Ceilings struct {
	// Workspace, Namespace and Cluster limit all machines of one Workspace, of one namespace, and of the cluster.
	Workspace, Namespace, Cluster float64
	// IsNamespaceOwn is set if Namespace comes from the annotation of one namespace.
	IsNamespaceOwn bool
	// Month returns the monthly budget of the namespace and its use. It is called once something has to be bought; nil
	// if no monthly budget stops purchases.
	Month func() (Month, error)
}

// IsSet reports whether there is any limit.
func (c Ceilings) IsSet() bool {
	return c.Workspace > 0 || c.Namespace > 0 || c.Cluster > 0 || c.Month != nil
}

// perNamespace returns the kind of the ceiling for a namespace.
func (c Ceilings) perNamespace() Kind {
	if c.IsNamespaceOwn {
		return NamespaceOwn
	}
	return PerNamespace
}

// Lowest returns the lowest ceiling, which bounds every plan; 0 if there is none.
func (c Ceilings) Lowest() (Kind, float64) {
	kind, lowest := Kind(""), 0.0
	for _, known := range []struct {
		kind  Kind
		limit float64
	}{{PerWorkspace, c.Workspace}, {c.perNamespace(), c.Namespace}, {PerCluster, c.Cluster}} {
		if known.limit > 0 && (lowest == 0 || known.limit < lowest) {
			kind, lowest = known.kind, known.limit
		}
	}
	return kind, lowest
}

// Ledger grants money. It may be used from several goroutines.
type Ledger struct {
	source capacity.CostSource

	reads lookup.Reads

	mu       sync.Mutex
	isLoaded bool
	// granted are the grants by machine, while their machines are not in the cache yet.
	granted map[string]grant
}

// grant is the reserved cost of a machine that is not in the cache yet.
type grant struct {
	capacity.MachineCost
	at time.Time
}

// New returns a Ledger over a source of machine costs.
func New(source capacity.CostSource) *Ledger {
	return &Ledger{source: source, granted: map[string]grant{}}
}

// Reserve grants the money for machines of one owner within the ceilings, all or none. Existing machines need no grant,
// so a lower ceiling removes none of them. The error is an *OverError if the machines would exceed a ceiling.
func (l *Ledger) Reserve(ctx context.Context, now time.Time, asked []capacity.MachineCost, ceilings Ceilings) error {
	if !ceilings.IsSet() || len(asked) == 0 {
		return nil
	}
	return l.decide(ctx, now, func(held map[string]capacity.MachineCost) error {
		asked := slices.DeleteFunc(slices.Clone(asked), func(bill capacity.MachineCost) bool {
			_, isGranted := l.granted[bill.Machine]
			_, isHeld := held[bill.Machine]
			if isHeld && isGranted { // the grant may be from another plan: the current request counts
				delete(held, bill.Machine)
				return false
			}
			return isHeld
		})
		if len(asked) == 0 {
			return nil
		}
		month, err := monthOf(held, asked[0].Owner, ceilings, now)
		if err != nil {
			return err
		}
		if err := checkMonth(month, held, asked, now); err != nil {
			return err
		}
		if over := check(held, asked, ceilings); over != nil {
			return over
		}
		for _, bill := range asked {
			l.granted[bill.Machine] = grant{MachineCost: bill, at: now}
		}
		return nil
	})
}

// decide calls decision with the cost of every present or granted machine. Only one decision runs at a time. decide
// adds the time when the earliest grant is overdue to an *OverError.
func (l *Ledger) decide(ctx context.Context, now time.Time, decision func(held map[string]capacity.MachineCost) error) error {
	if err := l.settle(ctx, now); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	held, err := l.held(ctx)
	if err != nil {
		return err
	}
	err = decision(held)
	if over, isOver := errors.AsType[*OverError](err); isOver {
		over.LookAgain = l.nextLook()
	}
	return err
}

// held returns the cost of every present or granted machine, by name.
func (l *Ledger) held(ctx context.Context) (map[string]capacity.MachineCost, error) {
	held, err := l.see(ctx)
	if err != nil {
		return nil, err
	}
	for name, known := range l.granted {
		held[name] = known.MachineCost
	}
	return held, nil
}

// see returns the costs of the machines in the cache, and ends their grants.
func (l *Ledger) see(ctx context.Context) (map[string]capacity.MachineCost, error) {
	seen, err := l.source.MachineCosts(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]capacity.MachineCost, len(seen))
	for _, bill := range seen {
		out[bill.Machine] = bill
		delete(l.granted, bill.Machine)
	}
	return out, nil
}

// settle reads from the API server the machines that are not in the cache. It does so at the start, because an earlier
// leader may have just bought machines, and whenever a grant is overdue. It holds no lock during the read.
func (l *Ledger) settle(ctx context.Context, now time.Time) error {
	for {
		overdue, isSettled, err := l.overdue(ctx, now)
		if isSettled || err != nil {
			return err
		}
		isOurs, err := l.reads.Do(ctx, "machines", now, func(ctx context.Context) error {
			live, err := l.source.LiveMachineCosts(ctx)
			if err != nil {
				return err
			}
			return l.enter(ctx, now, live, overdue)
		})
		if isOurs || err != nil {
			return err
		}
	}
}

// overdue returns the grants whose machines should be in the cache by now. isSettled reports that no live read is
// necessary.
func (l *Ledger) overdue(ctx context.Context, now time.Time) (overdue map[string]grant, isSettled bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	find := func() map[string]grant {
		out := maps.Clone(l.granted)
		maps.DeleteFunc(out, func(_ string, known grant) bool { return now.Sub(known.at) < bridge })
		return out
	}
	if overdue = find(); len(overdue) > 0 {
		if _, err := l.see(ctx); err != nil {
			return nil, false, err
		}
		overdue = find()
	}
	return overdue, l.isLoaded && len(overdue) == 0, nil
}

// enter ends the grants that were overdue before the live read, and adds grants for live machines that the cache
// lacks.
func (l *Ledger) enter(ctx context.Context, now time.Time, live []capacity.MachineCost, overdue map[string]grant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen, err := l.see(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(l.granted, func(name string, known grant) bool {
		was, isOverdue := overdue[name]
		return isOverdue && was.at.Equal(known.at)
	})
	for _, bill := range live {
		if _, isSeen := seen[bill.Machine]; !isSeen {
			l.granted[bill.Machine] = grant{MachineCost: bill, at: now}
		}
	}
	l.isLoaded = true
	return nil
}

// nextLook returns when the earliest grant is overdue; zero if there is none.
func (l *Ledger) nextLook() time.Time {
	var at time.Time
	for _, known := range l.granted {
		if overdue := known.at.Add(bridge); at.IsZero() || overdue.Before(at) {
			at = overdue
		}
	}
	return at
}

// account is the scope of one ceiling.
type account struct {
	kind    Kind
	limit   float64
	covers  func(capacity.Owner) bool
	spender func(capacity.Owner) string
}

func accounts(owner capacity.Owner, ceilings Ceilings) []account {
	nameOf := func(other capacity.Owner) string { return other.Name }
	inNamespace := func(other capacity.Owner) bool { return other.Namespace == owner.Namespace }
	all := []account{
		{PerWorkspace, ceilings.Workspace, func(other capacity.Owner) bool { return other.UID == owner.UID }, nameOf},
		{ceilings.perNamespace(), ceilings.Namespace, inNamespace, nameOf},
		// Spenders of the cluster are not named: they are in other namespaces.
		{PerCluster, ceilings.Cluster, func(capacity.Owner) bool { return true }, nil},
	}
	return slices.DeleteFunc(all, func(a account) bool { return a.limit <= 0 })
}

// check returns the ceiling with the largest excess, or nil.
func check(held map[string]capacity.MachineCost, asked []capacity.MachineCost, ceilings Ceilings) *OverError {
	owner := asked[0].Owner
	accounts := accounts(owner, ceilings)
	if len(accounts) == 0 {
		return nil
	}
	sum := 0.0
	for _, bill := range asked {
		if bill.HourlyPrice < 0 {
			return &OverError{Kind: accounts[0].kind, Ceiling: accounts[0].limit, Asked: -1, Owner: owner, InstanceType: bill.InstanceType}
		}
		sum += bill.HourlyPrice
	}
	var worst *OverError
	room := -1.0
	for _, a := range accounts {
		used, spenders := a.tally(held)
		left := max(a.limit-used, 0)
		if room < 0 || left < room {
			room = left
		}
		over := &OverError{
			Kind: a.kind, Ceiling: a.limit, Used: used, Asked: sum, Owner: owner, InstanceType: asked[0].InstanceType, Spenders: spenders,
		}
		if over.By() > tolerance && (worst == nil || over.By() > worst.By()) {
			worst = over
		}
	}
	if worst != nil {
		worst.Room = room
	}
	return worst
}

// tally returns an account's cost and its spenders, largest first. The order of the sum is fixed, so its rounding
// error is, too.
func (a account) tally(held map[string]capacity.MachineCost) (float64, []Spender) {
	used, by := 0.0, map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		bill := held[name]
		if !a.covers(bill.Owner) || bill.HourlyPrice <= 0 {
			continue
		}
		used += bill.HourlyPrice
		if a.spender != nil {
			by[a.spender(bill.Owner)] += bill.HourlyPrice
		}
	}
	var spenders []Spender
	for _, name := range slices.Sorted(maps.Keys(by)) {
		spenders = append(spenders, Spender{Name: name, HourlyPrice: by[name]})
	}
	slices.SortStableFunc(spenders, func(a, b Spender) int { return cmp.Compare(b.HourlyPrice, a.HourlyPrice) })
	return used, spenders
}

// Forget drops the grants of an owner that has no objects in the API server.
func (l *Ledger) Forget(owner types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.granted, func(_ string, known grant) bool { return known.Owner.UID == owner })
}
