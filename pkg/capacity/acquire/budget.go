// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"fmt"

	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/usd"
)

// PriceTolerance is the rounding error of a sum of prices, in USD per hour.
const PriceTolerance = 1e-6

// Budget is a Workspace's limit on machines in addition to the serving ones. The zero value has no limit, and
// nothing serves.
type Budget struct {
	// Serving is the serving machine type; empty if none serves. Cost is the price of all serving machines in USD per
	// hour; negative if a price is unknown.
	Serving string
	Cost    float64
	// Limit on all machines of the Workspace in USD per hour, with its name; 0 is none.
	Limit     float64
	LimitName string
}

// RecreateError means that there is no room for more machines while the serving ones exist, so those are released
// before others are bought.
type RecreateError struct{ Why string }

// Error names the reason.
func (e *RecreateError) Error() string {
	return "the serving machines are released before others are bought: " + e.Why
}

// Beside returns a *RecreateError if the limit has no room for more machines in addition to the serving ones. Price
// is that of the new machines in USD per hour; negative if unknown.
func (b *Budget) Beside(instanceType string, price float64) error {
	if b.Serving == "" || b.Limit <= 0 {
		return nil
	}
	limit := fmt.Sprintf("%s of %s", b.LimitName, usd.PerHour(b.Limit))
	switch {
	case b.Cost < 0 || price < 0:
		return &RecreateError{fmt.Sprintf("%s may have no room for %s in addition to %s, because one of the two prices is unknown",
			limit, instanceType, b.Serving)}
	case b.Cost+price > b.Limit+PriceTolerance:
		return &RecreateError{fmt.Sprintf("%s has no room for %s (%s) in addition to %s (%s)",
			limit, instanceType, usd.PerHour(price), b.Serving, usd.PerHour(b.Cost))}
	default:
		return nil
	}
}

// InsteadOf returns a *RecreateError if an administrator's ceiling has room for a plan in place of the serving
// machines, but not in addition to them. It returns nil if the release of the serving machines would not make enough
// room. A release never makes room in a monthly budget.
func (b *Budget) InsteadOf(over *ledger.OverError) error {
	if b.Serving == "" || over.Kind == ledger.NamespaceMonth || over.Asked < 0 || over.By() > max(b.Cost, 0)+PriceTolerance {
		return nil
	}
	return &RecreateError{fmt.Sprintf("the administrator's ceiling %s of %s has no room for %s (%s) in addition to %s (%s)",
		over.Kind, usd.PerHour(over.Ceiling), over.InstanceType, usd.PerHour(over.Asked), b.Serving, usd.PerHour(b.Cost))}
}

// Room returns the remaining room under a ceiling for a plan in place of the serving machines, in USD per hour.
func (b *Budget) Room(over *ledger.OverError) float64 {
	if over.Kind == ledger.NamespaceMonth {
		return over.Room
	}
	return over.Room + max(b.Cost, 0)
}
