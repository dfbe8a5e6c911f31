// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"fmt"
	"time"

	"github.com/modelberth/modelberth/pkg/cost"
)

// outdated is the age of the last look from which the costs of a month count as unknown. Looks are a minute apart while
// there is a machine or a budget.
const outdated = 15 * time.Minute

// month is an immutable snapshot of the ledger.
type month struct {
	// at is the time of the look at the machines.
	at      time.Time
	charges []cost.Charge
	// changed is the time of the oldest change that is not yet stored; zero if there is none.
	changed time.Time
	// spending holds the costs of namespaces, and budgets holds their valid budgets.
	spending map[string]cost.Month
	budgets  map[string]cost.Budget
	// unreadable counts the parts of the ledger that cannot be read. restored counts the lost parts that continue from
	// the memory of this process, or from the copies in the namespaces.
	unreadable, restored int
}

// snapshot stores the charges of this month for metrics and purchases. A scrape must not wait for a pass, which holds
// the lock while it writes to the API server.
func (k *Keeper) snapshot() {
	if k.looked.IsZero() { // a Keeper without a look does not lead
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

// isOf reports whether a snapshot belongs to the month of now. Without machines there are no looks, so a month may end
// without a new snapshot.
func (m *month) isOf(now time.Time) bool { return cost.MonthEnd(m.at).Equal(cost.MonthEnd(now)) }

// seen returns the charges of the snapshot in the month of now, and the age of its oldest unstored change.
func (m *month) seen(now time.Time) (charges []cost.Charge, unstored time.Duration) {
	if !m.changed.IsZero() {
		unstored = max(now.Sub(m.changed), 0)
	}
	if !m.isOf(now) {
		return nil, unstored
	}
	return m.charges, unstored
}

// of returns the spending of a namespace in the month of now.
func (m *month) of(namespace string, now time.Time) cost.Month {
	out := m.spending[namespace]
	if !m.isOf(now) {
		out.Spent = 0
	}
	return out
}

// Month returns the costs of a namespace in the month of now, and until when they are known. The error explains why
// they are unknown, without details about other namespaces.
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
		return cost.Month{}, time.Time{}, fmt.Errorf("the cost ledger was last updated at %s, which is too long ago: the controller's log has the reason",
			m.at.UTC().Format("2006-01-02 15:04 MST"))
	default:
		return m.of(namespace, now), m.at, nil
	}
}
