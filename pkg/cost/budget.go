// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/usd"
)

// Budget is an administrator's limit on the costs of a namespace in a month.
type Budget struct {
	USD float64
	// Stops: once the budget is spent, no more machines are bought. Otherwise, the budget only affects metrics.
	Stops bool
}

// Action returns the name of what happens once the budget is spent.
func (b Budget) Action() string {
	if b.Stops {
		return v1beta1.BudgetStops
	}
	return v1beta1.BudgetAlerts
}

// BudgetOf reads the budget from the annotations of a namespace; nil if there is none. If an annotation is invalid,
// only Stops of the budget is valid: it is true unless the administrator requests only alerts.
func BudgetOf(annotations map[string]string) (*Budget, error) {
	text, isSet := annotations[v1beta1.AnnotationMonthlyBudget]
	action, hasAction := annotations[v1beta1.AnnotationBudgetAction]
	if !isSet && !hasAction {
		return nil, nil
	}
	out := &Budget{Stops: action != v1beta1.BudgetAlerts}
	const most = 64
	if hasAction && out.Stops && action != v1beta1.BudgetStops {
		return out, fmt.Errorf("the annotation %s is %q: set %s or %s, or remove it",
			v1beta1.AnnotationBudgetAction, request.Shorten(action, most), v1beta1.BudgetStops, v1beta1.BudgetAlerts)
	}
	amount, ok := usd.Parse(text)
	if !ok {
		return out, fmt.Errorf("the annotation %s is %q: set a number above 0 in USD per month, such as 500, or remove it with %s",
			v1beta1.AnnotationMonthlyBudget, request.Shorten(text, most), v1beta1.AnnotationBudgetAction)
	}
	out.USD = amount
	return out, nil
}

// Month has a namespace's costs in a month.
type Month struct {
	// Spent is the cost since the beginning of the month, in USD.
	Spent float64
	// Rate is the price of its present machines, in USD per hour.
	Rate float64
}

// Forecast returns the cost of the whole month if the present machines run until its end.
func (m Month) Forecast(now time.Time) float64 {
	return m.Spent + m.Rate*MonthEnd(now).Sub(now).Hours()
}

// MonthEnd returns when the month of a moment ends, in UTC.
func MonthEnd(now time.Time) time.Time { return next(now, monthLabel) }

// MonthBegin returns when the month of a moment begins, in UTC.
func MonthBegin(now time.Time) time.Time { return floor(now, monthLabel) }

// Months returns the month of each namespace with charges or open machines.
func Months(charges []Charge, rates map[string]float64) map[string]Month {
	nanos := map[string]int64{}
	for i := range charges {
		nanos[charges[i].Namespace] = sum(nanos[charges[i].Namespace], charges[i].Cells.Total().Nanos)
	}
	out := make(map[string]Month, len(nanos))
	for namespace, spent := range nanos {
		out[namespace] = Month{Spent: Amount{Nanos: spent}.USD(), Rate: rates[namespace]}
	}
	for namespace, rate := range rates {
		if _, isKnown := out[namespace]; !isKnown {
			out[namespace] = Month{Rate: rate}
		}
	}
	return out
}

// Rates returns the prices of the open machines of each namespace, in USD per hour.
func (l *Ledger) Rates() map[string]float64 {
	micros := map[string]int64{}
	for _, r := range l.machines {
		micros[r.key.Namespace] = sum(micros[r.key.Namespace], max(r.key.Price, 0))
	}
	out := make(map[string]float64, len(micros))
	for namespace, price := range micros {
		out[namespace] = float64(price) / 1e6
	}
	return out
}
