// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
)

// TestReserveWithinMonth reserves machines under a monthly budget.
func TestReserveWithinMonth(t *testing.T) {
	const raise = ": nothing more is bought before 2026-02-01 00:00 UTC, and running machines stay; to buy sooner, have the administrator " +
		"raise the namespace's annotation modelberth.dev/monthly-budget to "
	unknown := errors.New("the ledger cannot be read")
	launched := func(ago time.Duration) capacity.MachineCost {
		out := bill("a", "new", "n", 8)
		out.Launched, out.LaunchedAt = true, start.Add(-ago)
		return out
	}
	leaving := bill("a", "old", "l", 8)
	leaving.Leaving = true
	tests := []struct {
		reason    string
		spent     float64
		err       error
		age       time.Duration // of the known costs
		namespace float64
		held      []capacity.MachineCost
		asked     []capacity.MachineCost
		want      string
		room      float64
	}{
		{reason: "the first hour fits", spent: 92, asked: []capacity.MachineCost{bill("a", "chat", "m", 8)}},
		{
			reason: "the budget is spent", spent: 103.7, asked: []capacity.MachineCost{bill("a", "chat", "m", 8)},
			want: "at least 100 % ($100.00) of the monthly budget of $100.00 for namespace a was spent in January 2026 (UTC)" + raise + "208 or more",
		},
		{
			reason: "free machines end with it, too", spent: 100, asked: []capacity.MachineCost{bill("a", "chat", "m", 0)},
			want: "at least 100 % ($100.00) of the monthly budget of $100.00 for namespace a was spent in January 2026 (UTC)" + raise + "200 or more",
		},
		{
			reason: "the first hour of two machines does not fit", spent: 92,
			asked: []capacity.MachineCost{bill("a", "chat", "m", 8), bill("a", "chat", "n", 8)}, room: 8,
			want: "at least 92 % ($92.00) of the monthly budget of $100.00 for namespace a was spent in January 2026 (UTC), " +
				"and too little is left for an hour of big ($16.00/h)" + raise + "109 or more",
		},
		{
			reason: "no price is known", asked: []capacity.MachineCost{bill("a", "chat", "m", -1)}, room: 100,
			want: "namespace a has a monthly budget, and no price is known for big: choose another machine type, or have the administrator " +
				"add a price",
		},
		{
			reason: "machines that run need no budget", spent: 500, err: unknown, held: []capacity.MachineCost{bill("a", "chat", "m", 8)},
			asked: []capacity.MachineCost{bill("a", "chat", "m", 8)},
		},
		{
			reason: "the first hour of a machine that was just bought is to be paid", spent: 88, held: []capacity.MachineCost{bill("a", "new", "n", 8)},
			asked: []capacity.MachineCost{bill("a", "chat", "m", 8)}, room: 4,
			want: "at least 88 % ($88.00) of the monthly budget of $100.00 for namespace a was spent in January 2026 (UTC), and too little " +
				"is left for an hour of big ($8.00/h) in addition to the first hour of the newest machines ($8.00)" +
				strings.Replace(raise, "UTC,", "UTC, unless one of those machines is released,", 1) + "105 or more",
		},
		{
			reason: "half of its hour is spent", spent: 88, held: []capacity.MachineCost{launched(30 * time.Minute)},
			asked: []capacity.MachineCost{bill("a", "chat", "m", 8)},
		},
		{
			reason: "its hour is over", spent: 92, held: []capacity.MachineCost{launched(time.Hour)},
			asked: []capacity.MachineCost{bill("a", "chat", "m", 8)},
		},
		{
			reason: "a node's clock is ahead", spent: 84, held: []capacity.MachineCost{launched(-time.Hour)},
			asked: []capacity.MachineCost{bill("a", "chat", "m", 8)},
		},
		{
			reason: "machines that leave, cost nothing, or belong to others need none of it", spent: 92,
			held:  []capacity.MachineCost{leaving, bill("a", "free", "f", 0), bill("a", "unpriced", "u", -1), bill("b", "chat", "o", 8)},
			asked: []capacity.MachineCost{bill("a", "chat", "m", 8)},
		},
		{
			reason: "what old machines have cost since the last look counts", spent: 80, age: 2 * time.Hour,
			held: []capacity.MachineCost{launched(5 * time.Hour)}, asked: []capacity.MachineCost{bill("a", "chat", "m", 8)}, room: 4,
			want: "at least 96 % ($96.00) of the monthly budget of $100.00 for namespace a was spent in January 2026 (UTC), " +
				"and too little is left for an hour of big ($8.00/h)" + raise + "105 or more",
		},
		{
			reason: "a machine that is younger than the look costs since its launch", spent: 84, age: 2 * time.Hour,
			held: []capacity.MachineCost{launched(time.Hour)}, asked: []capacity.MachineCost{bill("a", "chat", "m", 8)},
		},
		{reason: "unknown costs stop purchases", err: unknown, asked: []capacity.MachineCost{bill("a", "chat", "m", 8)}, want: unknown.Error()},
		{
			reason: "the hourly ceiling holds, too", namespace: 7, asked: []capacity.MachineCost{bill("a", "chat", "m", 8)}, room: 7,
			want: "the administrator's ceiling spending.perNamespace is $7.00/h for namespace a; big ($8.00/h) would exceed it by $1.00/h: " +
				"choose a cheaper machine type, or have the administrator raise the ceiling",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			books := ledger.New(&source{live: test.held, cached: test.held})
			ceilings := ledger.Ceilings{Namespace: test.namespace, Month: func() (ledger.Month, error) {
				return ledger.Month{Budget: 100, Spent: test.spent, AsOf: start.Add(-test.age), Ends: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)}, test.err
			}}
			err := books.Reserve(t.Context(), start, test.asked, ceilings)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != test.want {
				t.Errorf("got  %q\nwant %q", text, test.want)
			}
			if over, is := errors.AsType[*ledger.OverError](err); is && over.Room != test.room {
				t.Errorf("room for %v, want %v", over.Room, test.room)
			}
		})
	}
}

// TestFirstHoursAreReserved requests machines concurrently under a budget with room for one, and one machine in place
// of another.
func TestFirstHoursAreReserved(t *testing.T) {
	books := ledger.New(&source{})
	ceilings := ledger.Ceilings{Month: func() (ledger.Month, error) { return ledger.Month{Budget: 10, Ends: start.AddDate(0, 1, 0)}, nil }}
	first, second := []capacity.MachineCost{bill("a", "first", "m", 8)}, []capacity.MachineCost{bill("a", "second", "n", 8)}
	if err := books.CheckMonth(t.Context(), start, first, ceilings); err != nil {
		t.Errorf("nothing is bought, and the first finds no room: %v", err)
	}
	if err := books.Reserve(t.Context(), start, first, ceilings); err != nil {
		t.Fatalf("the first: %v", err)
	}
	over, isOver := errors.AsType[*ledger.OverError](books.Reserve(t.Context(), start, second, ceilings))
	if !isOver || over.Kind != ledger.NamespaceMonth || over.Room != 2 || over.LookAgain.IsZero() {
		t.Errorf("the second got %+v, want no room but 2, and a look when the grant of the first ends", over)
	}
	over, isOver = errors.AsType[*ledger.OverError](books.CheckMonth(t.Context(), start, second, ceilings))
	if !isOver || over.LookAgain.IsZero() {
		t.Errorf("the check for the second got %+v, want no room, and a look when the grant of the first ends", over)
	}
	if err := books.CheckMonth(t.Context(), over.LookAgain, second, ceilings); err != nil {
		t.Errorf("the machine of the first never came, and the second finds no room: %v", err)
	}
	if err := books.CheckMonth(t.Context(), start, []capacity.MachineCost{bill("a", "first", "o", 8)}, ceilings); err != nil {
		t.Errorf("the first finds no room in its own place: %v", err)
	}
	if err := books.Reserve(t.Context(), start, first, ceilings); err != nil {
		t.Fatalf("the first, again: %v", err)
	}
	if err := books.Reserve(t.Context(), start, []capacity.MachineCost{bill("a", "first", "o", 8)}, ceilings); err != nil {
		t.Errorf("the cloud refused a machine, and the next one finds no room: %v", err)
	}
	books.Forget(first[0].Owner.UID)
	if err := books.Reserve(t.Context(), start, second, ceilings); err != nil {
		t.Errorf("the first buys nothing, and the second finds no room: %v", err)
	}
}
