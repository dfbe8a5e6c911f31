// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/usd"
)

// Month is the budget of a namespace for a month, and its use, in USD.
type Month struct {
	Budget, Spent float64
	// AsOf is the time up to which Spent is known. monthOf adds the cost of the present machines since then.
	AsOf time.Time
	// Ends is when the next month begins.
	Ends time.Time
}

// reserved is how much time of a new machine the budget must cover. How much longer it will run is unknown.
const reserved = time.Hour

// CheckMonth returns an *OverError if the monthly budget would have no room for the first hour of the machines, even
// if they replaced the owner's present ones. It returns nil if no monthly budget stops purchases.
func (l *Ledger) CheckMonth(ctx context.Context, now time.Time, asked []capacity.MachineCost, ceilings Ceilings) error {
	if ceilings.Month == nil || len(asked) == 0 {
		return nil
	}
	return l.decide(ctx, now, func(held map[string]capacity.MachineCost) error {
		month, err := monthOf(held, asked[0].Owner, ceilings, now)
		if err != nil {
			return err
		}
		maps.DeleteFunc(held, func(_ string, bill capacity.MachineCost) bool { return bill.Owner.UID == asked[0].Owner.UID })
		return checkMonth(month, held, asked, now)
	})
}

// monthOf returns the use of the monthly budget until now; nil if no monthly budget stops purchases.
func monthOf(held map[string]capacity.MachineCost, owner capacity.Owner, ceilings Ceilings, now time.Time) (*Month, error) {
	if ceilings.Month == nil {
		return nil, nil
	}
	month, err := ceilings.Month()
	if err != nil {
		return nil, err
	}
	month.Spent += costSince(held, owner.Namespace, month.AsOf, now)
	return &month, nil
}

// costSince returns the costs of the present machines of a namespace since a time, in USD. The order of the sum is
// fixed, so its rounding error is, too.
func costSince(held map[string]capacity.MachineCost, namespace string, since, now time.Time) float64 {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(held)) {
		bill := held[name]
		if bill.Owner.Namespace != namespace || !bill.Launched || bill.HourlyPrice <= 0 {
			continue
		}
		from := since
		if bill.LaunchedAt.After(from) {
			from = bill.LaunchedAt
		}
		sum += bill.HourlyPrice * max(now.Sub(from), 0).Hours()
	}
	return sum
}

// checkMonth returns an *OverError if the monthly budget has no room for the first hour of the requested machines. The
// unspent part of the first hour of the namespace's young machines takes room, too.
func checkMonth(month *Month, held map[string]capacity.MachineCost, asked []capacity.MachineCost, now time.Time) error {
	if month == nil {
		return nil
	}
	started, rest := firstHours(held, asked[0].Owner, now)
	room := month.Budget - month.Spent - rest
	over := &OverError{
		Kind: NamespaceMonth, Ceiling: month.Budget, Used: month.Spent, Owner: asked[0].Owner, InstanceType: asked[0].InstanceType,
		Started: started, Room: max(room, 0), Ends: month.Ends,
	}
	for i := range asked {
		if asked[i].HourlyPrice < 0 {
			over.Asked, over.InstanceType = -1, asked[i].InstanceType
			return over
		}
		over.Asked += asked[i].HourlyPrice
	}
	if over.Asked > room+tolerance || month.Spent >= month.Budget {
		return over
	}
	return nil
}

// firstHours returns the price of the first hour of the young machines in the owner's namespace, and its unspent part,
// in USD. The owner's machines count only once they have launched. Before that, they may be from a refused attempt,
// and the owner requests all machines of an attempt together. A machine with an unknown launch time is not young. The
// order of the sums is fixed, so their rounding errors are, too.
func firstHours(held map[string]capacity.MachineCost, owner capacity.Owner, now time.Time) (started, rest float64) {
	for _, name := range slices.Sorted(maps.Keys(held)) {
		bill := held[name]
		if bill.Owner.Namespace != owner.Namespace || bill.Leaving || bill.HourlyPrice <= 0 ||
			bill.Owner.UID == owner.UID && !bill.Launched {
			continue
		}
		left := reserved
		if bill.Launched {
			left = min(reserved-now.Sub(bill.LaunchedAt), reserved)
		}
		if left > 0 {
			started += bill.HourlyPrice
			rest += bill.HourlyPrice * left.Hours()
		}
	}
	return started, rest
}

// ofMonth returns the message about a monthly budget. The share is in whole percent, so that the message rarely
// changes.
func (e *OverError) ofMonth() string {
	if e.Asked < 0 {
		return fmt.Sprintf("namespace %s has a monthly budget, and no price is known for %s: choose another machine type, or have "+
			"the administrator add a price", e.Owner.Namespace, e.InstanceType)
	}
	share := math.Floor(100 * e.Used / e.Ceiling)
	used := (share + 1) * e.Ceiling / 100
	if share >= 100 { // each percent of a small budget may take seconds
		share, used = 100, (math.Floor(e.Used/e.Ceiling)+1)*e.Ceiling
	}
	text := fmt.Sprintf("at least %.0f %% ($%.2f) of the monthly budget of $%.2f for namespace %s was spent in %s (UTC)",
		share, share*e.Ceiling/100, e.Ceiling, e.Owner.Namespace, e.Ends.Add(-time.Second).UTC().Format("January 2006"))
	if e.Used < e.Ceiling {
		text += fmt.Sprintf(", and too little is left for an hour of %s (%s)", e.InstanceType, usd.PerHour(e.Asked))
	}
	unless := ""
	if e.Used < e.Ceiling && e.Started > 0 {
		text += fmt.Sprintf(" in addition to the first hour of the newest machines ($%.2f)", e.Started)
		unless = ", unless one of those machines is released"
	}
	enough := math.Ceil(used + e.Started + e.Asked)
	return fmt.Sprintf("%s: nothing more is bought before %s%s, and running machines stay; to buy sooner, have the administrator raise "+
		"the namespace's annotation %s to %.0f or more", text, e.Ends.UTC().Format("2006-01-02 15:04 MST"), unless, e.Kind, enough)
}
