// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Charge has the amounts of one account in one period.
type Charge struct {
	Key
	// Period is the label of the period; see the function Period.
	Period string
	Cells  Cells
}

// Charges returns the charges of all periods that end after since, sorted by account and period. The first period may
// begin before since. Open machines are charged up to Seen.
func (l *Ledger) Charges(since time.Time) []Charge {
	accounts := l.settled()
	var out []Charge
	for _, key := range sortedKeys(accounts) {
		for _, label := range slices.Sorted(maps.Keys(accounts[key])) {
			cells := accounts[key][label]
			_, end, _ := Period(label)
			if *cells == (Cells{}) || !since.IsZero() && !end.After(since) {
				continue
			}
			out = append(out, Charge{Key: key, Period: label, Cells: *cells})
		}
	}
	return out
}

// settled returns the accounts with the time of open machines included. It does not change the ledger.
func (l *Ledger) settled() map[Key]periods {
	out := make(map[Key]periods, len(l.accounts))
	for key, account := range l.accounts {
		out[key] = account.clone()
	}
	h := horizonAt(l.Seen)
	for _, uid := range slices.Sorted(maps.Keys(l.machines)) {
		r := l.machines[uid]
		if out[r.key] == nil {
			out[r.key] = periods{}
		}
		r.charge(out[r.key], r.state, &h)
	}
	return out
}

// Month returns the charges of the month that contains a moment.
func (l *Ledger) Month(of time.Time) []Charge {
	month := of.UTC().Format(monthLabel)
	return slices.DeleteFunc(l.Charges(floor(of, monthLabel)), func(c Charge) bool { return !strings.HasPrefix(c.Period, month) })
}

// Plans returns the planned price of a million output tokens in USD, by Workspace.
func (l *Ledger) Plans() map[Name]string {
	out := map[Name]string{}
	for name, e := range l.engines {
		if e.plan != "" {
			out[name] = e.plan
		}
	}
	return out
}

// Open returns the number of open machines in each state.
func (l *Ledger) Open() map[State]int {
	out := map[State]int{}
	for _, r := range l.machines {
		out[r.state]++
	}
	return out
}

// Namespaces returns the namespaces with accounts or machines, sorted.
func (l *Ledger) Namespaces() []string {
	seen := map[string]bool{}
	for key := range l.accounts {
		seen[key.Namespace] = true
	}
	for _, r := range l.machines {
		seen[r.key.Namespace] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// Extract returns the part of the ledger of one namespace.
func (l *Ledger) Extract(namespace string) *Ledger {
	return l.Select(func(name Name) bool { return name.Namespace == namespace })
}

// Select returns the part of the ledger of some Workspaces, with the open machines and the engines. Restore continues
// from it. It lacks ended machines, because the ledger does not have their Workspaces.
func (l *Ledger) Select(isMeant func(Name) bool) *Ledger {
	out := New()
	out.Seen = l.Seen
	for key, account := range l.accounts {
		if isMeant(key.name()) {
			out.accounts[key] = account.clone()
		}
	}
	for uid, r := range l.machines {
		if isMeant(r.key.name()) {
			out.machines[uid] = new(*r)
		}
	}
	for name, e := range l.engines {
		if isMeant(name) {
			out.engines[name] = &engine{plan: e.plan, last: slices.Clone(e.last)}
		}
	}
	return out
}

// Join returns a ledger with the accounts, open machines and engines of several ledgers. If two have the same machine,
// it stays open with the first one's time, and the second one's time goes into the accounts.
func Join(ledgers ...*Ledger) *Ledger {
	out := New()
	for _, l := range ledgers {
		if l.Seen.After(out.Seen) {
			out.Seen = l.Seen
		}
		for key, account := range l.accounts {
			for label, cells := range account {
				out.account(key).at(label).Add(cells)
			}
		}
		for uid, r := range l.machines {
			if out.machines[uid] == nil {
				out.machines[uid] = new(*r)
				continue
			}
			h := horizonAt(l.Seen)
			r.charge(out.account(r.key), r.state, &h)
		}
		for name, e := range l.engines {
			out.engines[name] = &engine{plan: e.plan, last: slices.Clone(e.last)}
		}
	}
	return out
}

// Line is the sum of some charges.
type Line struct {
	Name  string
	Cells Cells
}

// Group sums charges by a name. The highest cost comes first; equal costs are sorted by name.
func Group(charges []Charge, by func(*Charge) string) []Line {
	sums := map[string]*Cells{}
	for i := range charges {
		name := by(&charges[i])
		if sums[name] == nil {
			sums[name] = &Cells{}
		}
		sums[name].Add(&charges[i].Cells)
	}
	var out []Line
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, Line{Name: name, Cells: *sums[name]})
	}
	slices.SortStableFunc(out, func(a, b Line) int {
		x, y := a.Cells.Total().Nanos, b.Cells.Total().Nanos
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		default:
			return 0
		}
	})
	return out
}

// PerMillion returns the cost in USD of a million output tokens; negative if there are none.
func PerMillion(cells *Cells) float64 {
	if cells.Output <= 0 {
		return -1
	}
	return cells.Total().USD() / float64(cells.Output) * 1e6
}
