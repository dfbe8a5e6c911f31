// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"fmt"
	"time"

	"github.com/modelberth/modelberth/pkg/cost"
)

// outdated is the age of a look at open machines after which the costs of a month are unknown. Looks are a minute apart.
const outdated = 15 * time.Minute

// month is a snapshot of the ledger. It is not changed after it was taken.
type month struct {
	// at is when it was taken.
	at      time.Time
	charges []cost.Charge
	// changed is the oldest change not yet stored; zero if there is none.
	changed time.Time
	// spending is that of the namespaces, and budgets are their valid budgets.
	spending map[string]cost.Month
	budgets  map[string]cost.Budget
	// isOpen: a machine is being paid for. isPartial: a part of the ledger cannot be read.
	isOpen, isPartial bool
}

// snapshot takes the charges of this month for the metrics and for purchases. A scrape must not wait for a pass: a pass
// holds the lock while it writes to the API server.
func (k *Keeper) snapshot() {
	if k.looked.IsZero() { // a Keeper that has not looked yet does not lead
		return
	}
	out := &month{at: k.Clock.Now(), changed: k.unstored(), budgets: k.budgets, isPartial: !k.isComplete()}
	rates := map[string]float64{}
	for _, s := range k.shards {
		if s == nil || s.failure != nil {
			continue
		}
		out.charges = append(out.charges, s.ledger.Month(out.at)...)
		out.isOpen = out.isOpen || s.ledger.IsOpen()
		for namespace, rate := range s.ledger.Rates() {
			rates[namespace] += rate
		}
	}
	out.spending = cost.Months(out.charges, rates)
	k.month.Store(out)
}

// isOf reports whether a snapshot is of the month of a moment. Without machines nobody looks, so a month ends without a
// new snapshot.
func (m *month) isOf(now time.Time) bool { return cost.MonthEnd(m.at).Equal(cost.MonthEnd(now)) }

// seen returns the current content of the snapshot.
func (m *month) seen(now time.Time) (charges []cost.Charge, unstored time.Duration) {
	if !m.changed.IsZero() {
		unstored = max(now.Sub(m.changed), 0)
	}
	if !m.isOf(now) {
		return nil, unstored
	}
	return m.charges, unstored
}

// of returns the spending of a namespace in the month of a moment.
func (m *month) of(namespace string, now time.Time) cost.Month {
	out := m.spending[namespace]
	if !m.isOf(now) {
		out.Spent = 0
	}
	return out
}

// Month returns the costs of a namespace in the month of a moment. The error says why they are unknown, without anything
// about other namespaces.
func (k *Keeper) Month(namespace string, now time.Time) (cost.Month, error) {
	m := k.month.Load()
	switch {
	case m == nil:
		return cost.Month{}, errors.New("the cost ledger has not been read yet")
	case m.isPartial:
		return cost.Month{}, errors.New("a part of the cost ledger cannot be read: the controller's log names it")
	case m.isOpen && now.Sub(m.at) > outdated:
		return cost.Month{}, fmt.Errorf("the cost ledger is as of %s: the controller's log has the reason",
			m.at.UTC().Format("2006-01-02 15:04 MST"))
	default:
		return m.of(namespace, now), nil
	}
}
