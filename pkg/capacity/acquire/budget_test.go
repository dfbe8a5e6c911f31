// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire_test

import (
	"errors"
	"testing"

	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
)

// TestInsteadOf covers plans that are within the ceiling only without the serving machines.
func TestInsteadOf(t *testing.T) {
	tests := []struct {
		reason string
		over   ledger.OverError
		want   bool
	}{
		{"what serves is in the way", ledger.OverError{Ceiling: 4, Used: 3, Asked: 3.673}, true},
		{"others are in the way too: nothing would be won", ledger.OverError{Ceiling: 4, Used: 9, Asked: 3.673}, false},
		{"its end gives nothing back to the month", ledger.OverError{Kind: ledger.NamespaceMonth, Ceiling: 100, Used: 99, Asked: 3}, false},
		{"the price is not known", ledger.OverError{Ceiling: 4, Used: 3, Asked: -1}, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			budget := acquire.Budget{Serving: "A", Cost: 3}
			_, got := errors.AsType[*acquire.RecreateError](budget.InsteadOf(&test.over))
			if got != test.want {
				t.Errorf("recreates: %v, want %v", got, test.want)
			}
		})
	}
}

// TestRoom checks what a plan in place of the serving machines may cost.
func TestRoom(t *testing.T) {
	budget := acquire.Budget{Serving: "A", Cost: 3}
	for _, test := range []struct {
		reason string
		kind   ledger.Kind
		want   float64
	}{
		{"the price of the serving machines comes back", ledger.PerNamespace, 5},
		{"their costs of the month do not", ledger.NamespaceMonth, 2},
	} {
		if got := budget.Room(&ledger.OverError{Kind: test.kind, Room: 2}); got != test.want {
			t.Errorf("%s: %v, want %v", test.reason, got, test.want)
		}
	}
}

// TestBesideLimit covers the limit on all machines of a Workspace. The sum may exceed the limit only by a rounding
// error.
func TestBesideLimit(t *testing.T) {
	tests := []struct {
		reason string
		budget acquire.Budget
		price  float64
		want   string
	}{
		{"no limit", acquire.Budget{Serving: "A", Cost: 3}, 3, ""},
		{"nothing serves", acquire.Budget{Limit: 1, LimitName: "the limit"}, 3, ""},
		{"both fit exactly", acquire.Budget{Serving: "A", Cost: 0.1, Limit: 0.3, LimitName: "the limit"}, 0.2, ""},
		{
			"both cost too much",
			acquire.Budget{Serving: "A", Cost: 3, Limit: 5, LimitName: "the limit"},
			3,
			"the serving machines are released before others are bought: the limit of $5.00/h has no room for B ($3.00/h) in addition to A ($3.00/h)",
		},
		{
			"the price of what serves is unknown",
			acquire.Budget{Serving: "A", Cost: -1, Limit: 5, LimitName: "the limit"},
			3,
			"the serving machines are released before others are bought: the limit of $5.00/h may have no room for B in addition to A, because one of the two prices is unknown",
		},
		{
			"the price of what is asked for is unknown",
			acquire.Budget{Serving: "A", Cost: 3, Limit: 5, LimitName: "the limit"},
			-1,
			"the serving machines are released before others are bought: the limit of $5.00/h may have no room for B in addition to A, because one of the two prices is unknown",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := ""
			if err := test.budget.Beside("B", test.price); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
