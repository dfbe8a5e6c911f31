// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"maps"
	"slices"
	"time"
)

// Merged returns a ledger with the merged costs of a namespace, by month, that the namespace's copy has and the given
// parts of the ledger lack. The copy has the sum of the merged accounts of all parts. It may also have merged accounts
// that are still separate in their part: Merged subtracts these, unless they are newer than the copy. So no cost of the
// parts is counted twice.
func Merged(copied *Ledger, namespace string, parts []*Ledger) *Ledger {
	out := New()
	out.Seen = copied.Seen
	others := Key{Namespace: namespace, Workspace: Others}
	accounts := copied.settled()
	has, known := accounts[others].months(copied.Seen), periods{}
	for _, part := range parts {
		for key, account := range part.settled() {
			if key.Namespace == namespace && (key == others || accounts[key] == nil) {
				known.add(account.months(copied.Seen))
			}
		}
	}
	// Periods may have been merged further since the copy. The total is an upper bound, independent of the months.
	left := combine(has.total(), known.total(), minus)
	for _, label := range slices.Backward(slices.Sorted(maps.Keys(has))) {
		part := combine(has.at(label), known.at(label), minus)
		part = combine(&part, &left, least)
		left = combine(&left, &part, minus)
		if part != (Cells{}) {
			out.account(others).at(label).Add(&part)
		}
	}
	return out
}

// months returns the costs by month, without periods that begin later than a moment.
func (p periods) months(until time.Time) periods {
	out := periods{}
	for label, cells := range p {
		if begin, _, _ := Period(label); !begin.After(until) {
			out.at(label[:min(len(label), len(monthLabel))]).Add(cells)
		}
	}
	return out
}

func (p periods) add(other periods) {
	for label, cells := range other {
		p.at(label).Add(cells)
	}
}

func (p periods) total() *Cells {
	out := &Cells{}
	for _, cells := range p {
		out.Add(cells)
	}
	return out
}

// combine applies a function to each pair of numbers of two cells.
func combine(a, b *Cells, f func(a, b int64) int64) Cells {
	out := Cells{Unsure: f(a.Unsure, b.Unsure), Prompt: f(a.Prompt, b.Prompt), Output: f(a.Output, b.Output)}
	for _, s := range States() {
		x, y := a.Of(s), b.Of(s)
		*out.of(s) = Amount{Millis: f(x.Millis, y.Millis), Nanos: f(x.Nanos, y.Nanos)}
	}
	out.bound()
	return out
}

func minus(a, b int64) int64 { return max(a-b, 0) }

func least(a, b int64) int64 { return min(a, b) }
