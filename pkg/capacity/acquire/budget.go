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

// Budget is a Workspace's limit for machines beside the serving ones. The zero value has no limit, and nothing
// serves.
type Budget struct {
	// Serving is the serving machine type; empty if none serves. Cost is the price of all its machines in USD per
	// hour; negative if one is unknown.
	Serving string
	Cost    float64
	// Limit on all machines of the Workspace in USD per hour, with its name; 0 is none.
	Limit     float64
	LimitName string
}

// RecreateError means that machines cannot be acquired beside the serving ones, so those are released first.
type RecreateError struct{ Why string }

// Error names the reason.
func (e *RecreateError) Error() string { return "the serving machines are released first: " + e.Why }

// Beside returns a *RecreateError if the limit has no room for more machines beside the serving ones. Price is that
// of the new machines in USD per hour; negative if unknown.
func (b *Budget) Beside(instanceType string, price float64) error {
	if b.Serving == "" || b.Limit <= 0 {
		return nil
	}
	what := fmt.Sprintf("%s of %s leaves no room for %s", b.LimitName, usd.PerHour(b.Limit), instanceType)
	switch {
	case b.Cost < 0 || price < 0:
		return &RecreateError{what + " beside " + b.Serving + ", as not both prices are known"}
	case b.Cost+price > b.Limit+PriceTolerance:
		return &RecreateError{fmt.Sprintf("%s (%s) beside %s (%s)", what, usd.PerHour(price), b.Serving, usd.PerHour(b.Cost))}
	default:
		return nil
	}
}

// InsteadOf returns a *RecreateError if an administrator's ceiling has room for a plan in place of the serving
// machines, though not beside them; nil if they are not in the way, or not alone.
func (b *Budget) InsteadOf(over *ledger.OverError) error {
	if b.Serving == "" || over.Asked < 0 || over.By() > max(b.Cost, 0)+PriceTolerance {
		return nil
	}
	return &RecreateError{fmt.Sprintf("the administrator's ceiling %s of %s leaves no room for %s (%s) beside %s (%s)",
		over.Kind, usd.PerHour(over.Ceiling), over.InstanceType, usd.PerHour(over.Asked), b.Serving, usd.PerHour(b.Cost))}
}

// Room returns the rest of a ceiling for a plan in place of the serving machines, in USD per hour.
func (b *Budget) Room(over *ledger.OverError) float64 { return over.Room + max(b.Cost, 0) }
