// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"fmt"
	"time"

	"github.com/modelberth/modelberth/pkg/cost"
)

// outdated is the age of a look after which the costs of a month are unknown. Looks are a minute apart, also without machines
// as long as there is a budget.
const outdated = 15 * time.Minute

// month is a snapshot of the ledger. It is not changed after it was taken.
type month struct {
	// at is when the machines were looked at.
	at      time.Time
	charges []cost.Charge
	// changed is the oldest change not yet stored; zero if there is none.
	changed time.Time
	// spending is that of the namespaces, and budgets are their valid budgets.
	spending map[string]cost.Month
	budgets  map[string]cost.Budget
	// unreadable counts the parts of the ledger that cannot be read. restored counts lost parts: they continue from the
	// memory of this process, or from the copies in the namespaces.
	unreadable, restored int
}

// snapshot takes the charges of this month for the metrics and for purchases. A scrape must not wait for a pass: a pass
// holds the lock while it writes to the API server.
func (k *Keeper) snapshot() {
	if k.looked.IsZero() { // a Keeper that has not looked yet does not lead
		return
	}
	out := &month{at: k.looked, changed: k.unstored(), budgets: k.budgets}
	rates := map[string]float64{}
	for _, s := range k.shards {
		if s.isRestored {
			out.restored++
		}
		if !s.isCurrent() {
			out.unreadable++
			continue
		}
		out.charges = append(out.charges, s.ledger.Month(out.at)...)
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

// Month returns the costs of a namespace in the month of a moment, and up to when they are known. The error says why they are
// unknown, without anything about other namespaces.
func (k *Keeper) Month(namespace string, now time.Time) (spent cost.Month, asOf time.Time, err error) {
	m := k.month.Load()
	switch {
	case m == nil:
		return cost.Month{}, time.Time{}, errors.New("the cost ledger has not been read yet")
	case m.unreadable > 0:
		return cost.Month{}, time.Time{}, errors.New("a part of the cost ledger cannot be read: have the administrator restore or delete the " +
			"ConfigMap that the controller's log names")
	case k.isFailing.Load():
		return cost.Month{}, time.Time{}, errors.New("the cost ledger cannot be read: the controller's log has the reason")
	case now.Sub(m.at) > outdated:
		return cost.Month{}, time.Time{}, fmt.Errorf("the cost ledger is as of %s: the controller's log has the reason",
			m.at.UTC().Format("2006-01-02 15:04 MST"))
	default:
		return m.of(namespace, now), m.at, nil
	}
}
