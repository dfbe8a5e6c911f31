// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"slices"
	"strings"
)

// mostAccounts is the most accounts of one namespace in a ledger.
const mostAccounts = 64

// Fit drops details until the encoded ledger has at most that many bytes, and returns the encoding. First it merges the
// accounts of a namespace beyond a fixed number, then hours, days, single accounts, months and namespaces. Sums do not
// change. The encoding can be longer only because of open machines.
func (l *Ledger) Fit(most int) ([]byte, error) {
	l.bound()
	for _, give := range []func(){
		func() {},
		func() { l.coarsen(len(dayLabel)) },
		func() { l.coarsen(len(monthLabel)) },
		func() { l.merge(func(key *Key) Key { return Key{Namespace: key.Namespace, Workspace: Others} }) },
		func() { l.coarsen(0) },
		func() { l.merge(func(*Key) Key { return Key{Namespace: Others, Workspace: Others} }) },
		func() { l.engines = map[Name]*engine{} },
		func() { l.trimGone(0) },
	} {
		give()
		data, err := l.Encode()
		if err != nil || len(data) <= most {
			return data, err
		}
	}
	return l.Encode()
}

// coarsen cuts the labels of periods to a length, and merges the periods whose labels become equal.
func (l *Ledger) coarsen(length int) {
	for _, account := range l.accounts {
		for label := range account {
			if len(label) > length {
				account.move(label, label[:length])
			}
		}
	}
}

// bound keeps the most recently used accounts of each namespace, and merges the others.
func (l *Ledger) bound() {
	count := map[string]int{}
	for key := range l.accounts {
		count[key.Namespace]++
	}
	for namespace, n := range count {
		if n > mostAccounts {
			l.mergeOldest(namespace, n-mostAccounts+1)
		}
	}
}

// mergeOldest merges the n least recently used accounts of a namespace.
func (l *Ledger) mergeOldest(namespace string, n int) {
	open := l.open()
	candidates := slices.DeleteFunc(sortedKeys(l.accounts), func(key Key) bool {
		return key.Namespace != namespace || key.Workspace == Others || open[key]
	})
	slices.SortStableFunc(candidates, func(a, b Key) int { return strings.Compare(l.accounts[a].last(), l.accounts[b].last()) })
	chosen := map[Key]bool{}
	for _, key := range candidates[:min(n, len(candidates))] {
		chosen[key] = true
	}
	l.mergeInto(chosen, func(key *Key) Key { return Key{Namespace: key.Namespace, Workspace: Others} })
}

// merge merges all accounts without open machines.
func (l *Ledger) merge(into func(*Key) Key) {
	open := l.open()
	chosen := map[Key]bool{}
	for key := range l.accounts {
		chosen[key] = !open[key]
	}
	l.mergeInto(chosen, into)
}

func (l *Ledger) mergeInto(chosen map[Key]bool, into func(*Key) Key) {
	for _, key := range sortedKeys(l.accounts) {
		to := into(&key)
		if !chosen[key] || to == key {
			continue
		}
		target := l.account(to)
		for label, cells := range l.accounts[key] {
			target.at(label).Add(cells)
		}
		delete(l.accounts, key)
	}
}

// open returns the accounts with open machines.
func (l *Ledger) open() map[Key]bool {
	out := map[Key]bool{}
	for _, r := range l.machines {
		out[r.key] = true
	}
	return out
}
