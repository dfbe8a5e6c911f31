// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
			want: "the administrator's ceiling spending.perNamespace is $7.00/h for namespace a; $8.00/h for big exceeds the ceiling by $1.00/h: " +
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

// TestFirstHoursAreReserved requests machines one after the other under a budget with room for one, and one machine in
// place of another.
func TestFirstHoursAreReserved(t *testing.T) {
	books := ledger.New(&source{})
	ceilings := ledger.Ceilings{Month: func() (ledger.Month, error) { return ledger.Month{Budget: 10, Ends: start.AddDate(0, 1, 0)}, nil }}
	first, second := []capacity.MachineCost{bill("a", "first", "m", 8)}, []capacity.MachineCost{bill("a", "second", "n", 8)}
	if err := books.Reserve(t.Context(), start, first, ceilings); err != nil {
		t.Fatalf("the first: %v", err)
	}
	over, isOver := errors.AsType[*ledger.OverError](books.Reserve(t.Context(), start, second, ceilings))
	if !isOver || over.Kind != ledger.NamespaceMonth || over.Room != 2 || over.LookAgain.IsZero() {
		t.Errorf("the second got %+v, want no room but 2, and a look when the grant of the first ends", over)
	}
	over, isOver = errors.AsType[*ledger.OverError](books.ReserveMonth(t.Context(), start, second, ceilings))
	if !isOver || over.LookAgain.IsZero() {
		t.Errorf("the successor of the second got %+v, want no room, and a look when the grant of the first ends", over)
	}
	if err := books.ReserveMonth(t.Context(), start, []capacity.MachineCost{bill("a", "first", "o", 8)}, ceilings); err != nil {
		t.Errorf("the first finds no room in its own place: %v", err)
	}
	if err := books.Reserve(t.Context(), start, first, ceilings); err != nil {
		t.Fatalf("the first, again: %v", err)
	}
	if err := books.Reserve(t.Context(), start, []capacity.MachineCost{bill("a", "first", "o", 8)}, ceilings); err != nil {
		t.Errorf("the cloud refused a machine, and the next one finds no room: %v", err)
	}
	if err := books.ReserveMonth(t.Context(), start.Add(2*time.Minute), second, ceilings); err != nil {
		t.Errorf("the machines of the first never came, and the second finds no room: %v", err)
	}
	books.Forget("a/second")
	books.Forget(first[0].Owner.UID)
	if err := books.Reserve(t.Context(), start, second, ceilings); err != nil {
		t.Errorf("the first buys nothing, and the second finds no room: %v", err)
	}
}

// TestSuccessorsAreReserved releases the machine of an answering model, because the budget has room for its successor.
// Nobody else gets that room before the model's next purchase.
func TestSuccessorsAreReserved(t *testing.T) {
	old := bill("a", "first", "old", 8)
	old.Launched, old.LaunchedAt = true, start.Add(-5*time.Hour)
	machines := &source{live: []capacity.MachineCost{old}, cached: []capacity.MachineCost{old}}
	books := ledger.New(machines)
	ceilings := ledger.Ceilings{Month: func() (ledger.Month, error) {
		return ledger.Month{Budget: 10, AsOf: start.Add(2 * time.Hour), Ends: start.AddDate(0, 1, 0)}, nil
	}}
	first, second := []capacity.MachineCost{bill("a", "first", "m", 8)}, []capacity.MachineCost{bill("a", "second", "n", 8)}
	for range 2 { // a second pass decides the same
		if err := books.ReserveMonth(t.Context(), start, first, ceilings); err != nil {
			t.Fatalf("the successor of the first: %v", err)
		}
	}
	machines.cached[0].Leaving = true
	end := start.Add(time.Hour)
	for reason, reserve := range map[string]func(context.Context, time.Time, []capacity.MachineCost, ledger.Ceilings) error{
		"a purchase": books.Reserve, "another successor": books.ReserveMonth,
	} {
		over, isOver := errors.AsType[*ledger.OverError](reserve(t.Context(), end.Add(-time.Second), second, ceilings))
		if !isOver || over.Kind != ledger.NamespaceMonth || over.Room != 2 || !over.LookAgain.Equal(end) {
			t.Errorf("%s got %+v, want room for 2, and another look at the end of the reservation", reason, over)
		}
	}
	over, isOver := errors.AsType[*ledger.OverError](books.Reserve(t.Context(), start, []capacity.MachineCost{bill("b", "dear", "d", 11)}, ceilings))
	if !isOver || !over.LookAgain.IsZero() {
		t.Errorf("another namespace got %+v, want no wait for this one", over)
	}
	if err := books.Reserve(t.Context(), start, []capacity.MachineCost{bill("b", "other", "o", 8)}, ceilings); err != nil {
		t.Errorf("another namespace has its own budget: %v", err)
	}
	if err := books.Reserve(t.Context(), start, second, ledger.Ceilings{Namespace: 16}); err != nil {
		t.Errorf("the successor is not bought yet, and takes room in a ceiling per hour: %v", err)
	}
	books.Forget("a/second")
	if err := books.Reserve(t.Context(), start.Add(time.Minute), first, ceilings); err != nil {
		t.Errorf("the first does not get its own room: %v", err)
	}
	if err := books.Reserve(t.Context(), start.Add(3*time.Minute), second, ceilings); err != nil {
		t.Errorf("the first has bought, its machine never came, and the second finds no room: %v", err)
	}
	books.Forget("a/second")
	if err := books.ReserveMonth(t.Context(), start, first, ceilings); err != nil {
		t.Fatal(err)
	}
	if err := books.Reserve(t.Context(), end, second, ceilings); err != nil {
		t.Errorf("the first bought nothing for an hour, and the second finds no room: %v", err)
	}
}

// TestConcurrentPurchases has ten Workspaces buy at once, five of them in place of machines that they release first. The
// budget has room for three.
func TestConcurrentPurchases(t *testing.T) {
	for range 20 {
		books := ledger.New(&source{})
		ceilings := ledger.Ceilings{Month: func() (ledger.Month, error) { return ledger.Month{Budget: 29, Ends: start.AddDate(0, 1, 0)}, nil }}
		var granted atomic.Int32
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				name := fmt.Sprintf("chat-%d", i)
				asked := []capacity.MachineCost{bill("a", name, name, 8)}
				if i%2 == 0 && books.ReserveMonth(t.Context(), start, asked, ceilings) != nil {
					return
				}
				err := books.Reserve(t.Context(), start, asked, ceilings)
				if err == nil {
					granted.Add(1)
				} else if i%2 == 0 {
					t.Errorf("%s had released its machine, and finds no room: %v", name, err)
				}
			})
		}
		all.Wait()
		if granted.Load() != 3 {
			t.Errorf("%d purchases were granted, want 3", granted.Load())
		}
	}
}

// account is a namespace whose machines cost money while a random month passes.
type account struct {
	source
	random *rand.Rand
	now    time.Time
	// total is the cost of the month, and seen the part that the cost ledger knew at its last look. missed is the cost
	// since then of machines that have ended meanwhile.
	total, seen, missed float64
	looked              time.Time
	bought              time.Time
}

const (
	accountBudget  = 300.0
	accountCeiling = 24.0
	accountStep    = 5 * time.Minute
	accountLook    = 15 * time.Minute
)

// pass lets time pass: machines launch, cost money and end, and the cost ledger looks at them now and then.
func (a *account) pass() {
	a.now = a.now.Add(accountStep)
	var stay []capacity.MachineCost
	for _, machine := range a.cached {
		if machine.Launched {
			a.total += machine.HourlyPrice * accountStep.Hours()
		} else if a.random.IntN(3) == 0 {
			machine.Launched, machine.LaunchedAt = true, a.now
		}
		life := 400 // steps, on average
		if machine.Owner.Name >= "chat-3" {
			life = 6
		}
		if a.random.IntN(life) > 0 {
			stay = append(stay, machine)
		} else if machine.Launched {
			a.missed += machine.HourlyPrice * min(a.now.Sub(a.looked), a.now.Sub(machine.LaunchedAt)).Hours()
		}
	}
	a.cached, a.live = stay, stay
	if a.now.Sub(a.looked) >= accountLook || a.random.IntN(2) == 0 {
		a.seen, a.missed, a.looked = a.total, 0, a.now
	}
}

// firstHours returns the unspent price of the first hour of all machines.
func (a *account) firstHours() float64 {
	sum := 0.0
	for _, machine := range a.cached {
		left := time.Hour
		if machine.Launched {
			left -= a.now.Sub(machine.LaunchedAt)
		}
		sum += machine.HourlyPrice * max(left, 0).Hours()
	}
	return sum
}

// request has every Workspace without a machine request one at the same time, and creates the granted ones.
func (a *account) request(t *testing.T, books *ledger.Ledger, ends time.Time) {
	t.Helper()
	ceilings := ledger.Ceilings{Namespace: accountCeiling, Month: func() (ledger.Month, error) {
		return ledger.Month{Budget: accountBudget, Spent: a.seen, AsOf: a.looked, Ends: ends}, nil
	}}
	granted := make(chan capacity.MachineCost, 6)
	var all sync.WaitGroup
	for i := range cap(granted) {
		name := fmt.Sprintf("chat-%d", i)
		if slices.ContainsFunc(a.cached, func(held capacity.MachineCost) bool { return held.Owner.Name == name }) {
			continue
		}
		asked := bill("a", name, name+a.now.Format("-02-1504"), float64(1+a.random.IntN(8)))
		all.Go(func() {
			if books.Reserve(t.Context(), a.now, []capacity.MachineCost{asked}, ceilings) == nil {
				granted <- asked
			}
		})
	}
	all.Wait()
	close(granted)
	isBought := false
	for machine := range granted {
		a.cached, isBought = append(a.cached, machine), true
	}
	a.live = a.cached
	if !isBought {
		return
	}
	a.bought = a.now
	if most := a.total + a.firstHours(); most > accountBudget+a.missed+1e-6 {
		t.Errorf("%s: $%.2f is spent or reserved at a purchase, over a budget of $%.2f, and $%.2f was unknown", a.now, most, accountBudget, a.missed)
	}
}

// TestOverrun compares the cost of random months with the bounds in docs/reference/spending.md.
func TestOverrun(t *testing.T) {
	overruns := 0
	for seed := range uint64(3) {
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		ends := begin.AddDate(0, 1, 0)
		a := &account{random: rand.New(rand.NewPCG(seed, 1)), now: begin, looked: begin, bought: begin}
		books := ledger.New(a)
		for a.now.Before(ends) {
			a.request(t, books, ends)
			a.pass()
		}
		unknown := accountCeiling * accountLook.Hours()
		bound := min(accountBudget+accountCeiling*ends.Sub(a.bought).Hours()+unknown, accountCeiling*ends.Sub(begin).Hours())
		if a.total > bound {
			t.Errorf("seed %d: the month cost $%.2f, and the bound is $%.2f", seed, a.total, bound)
		}
		if a.total > accountBudget {
			overruns++
		}
	}
	if overruns == 0 {
		t.Error("no month exceeds its budget, so the test shows nothing")
	}
}
