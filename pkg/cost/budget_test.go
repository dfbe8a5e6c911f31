// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cost"
)

func TestBudgetOf(t *testing.T) {
	const amount, action = v1beta1.AnnotationMonthlyBudget, v1beta1.AnnotationBudgetAction
	const noNumber = ": set a number above 0 in USD per month, such as 500, or remove it with modelberth.dev/budget-action"
	tests := []struct {
		reason      string
		annotations map[string]string
		want        *cost.Budget
		wantErr     string
	}{
		{reason: "none", annotations: map[string]string{"other": "1"}},
		{reason: "it stops purchases", annotations: map[string]string{amount: "500"}, want: &cost.Budget{USD: 500, Stops: true}},
		{reason: "it says so", annotations: map[string]string{amount: "0.5", action: "stop"}, want: &cost.Budget{USD: 0.5, Stops: true}},
		{reason: "it only alerts", annotations: map[string]string{amount: "500", action: "alert"}, want: &cost.Budget{USD: 500}},
		{
			reason: "a currency", annotations: map[string]string{amount: "500 USD"}, want: &cost.Budget{Stops: true},
			wantErr: `the annotation modelberth.dev/monthly-budget is "500 USD"` + noNumber,
		},
		{
			reason: "zero", annotations: map[string]string{amount: "0"}, want: &cost.Budget{Stops: true},
			wantErr: `the annotation modelberth.dev/monthly-budget is "0"` + noNumber,
		},
		{
			reason: "another notation", annotations: map[string]string{amount: "1e3"}, want: &cost.Budget{Stops: true},
			wantErr: `the annotation modelberth.dev/monthly-budget is "1e3"` + noNumber,
		},
		{
			reason: "no number, for alerts alone", annotations: map[string]string{amount: "-1", action: "alert"}, want: &cost.Budget{},
			wantErr: `the annotation modelberth.dev/monthly-budget is "-1"` + noNumber,
		},
		{
			reason: "an action without an amount", annotations: map[string]string{action: "stop"}, want: &cost.Budget{Stops: true},
			wantErr: `the annotation modelberth.dev/monthly-budget is ""` + noNumber,
		},
		{
			reason: "an unknown action stops purchases", annotations: map[string]string{amount: "500", action: "warn"}, want: &cost.Budget{Stops: true},
			wantErr: `the annotation modelberth.dev/budget-action is "warn": set stop or alert, or remove it`,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got, err := cost.BudgetOf(test.annotations)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := errorText(err); text != test.wantErr {
				t.Errorf("error %q, want %q", text, test.wantErr)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestMonths(t *testing.T) {
	begin := time.Date(2026, 11, 29, 22, 0, 0, 0, time.UTC)
	key := func(namespace, workspace string, price float64) cost.Key {
		return cost.Key{Namespace: namespace, Workspace: workspace, Price: cost.MicroUSD(price)}
	}
	machines := []cost.Machine{
		{UID: "1", Key: key("a", "chat", 4), Owned: true, LaunchedAt: begin},
		{UID: "2", Key: key("a", "draw", 2), Owned: true, LaunchedAt: begin},
		{UID: "3", Key: key("a", "free", -1), Owned: true, LaunchedAt: begin},
	}
	l := cost.New()
	l.Observe(cost.Step{At: begin})
	l.Observe(cost.Step{At: begin, Machines: machines})
	look := func(after time.Duration, machines ...cost.Machine) {
		l.Observe(cost.Step{At: l.Seen.Add(after), Elapsed: after, Machines: machines})
	}
	look(24*time.Hour, machines...) // to 22:00 on the last day
	look(0, append(machines[1:], cost.Machine{UID: "4", Key: key("b", "chat", 1), Owned: true, LaunchedAt: l.Seen})...)
	want := map[string]cost.Month{"a": {Spent: 24 * 6, Rate: 2}, "b": {Rate: 1}}
	if diff := cmp.Diff(want, cost.Months(l.Month(l.Seen), l.Rates())); diff != "" {
		t.Errorf("in November (-want +got):\n%s", diff)
	}
	if got := want["a"].Forecast(l.Seen); got != 24*6+2*2 {
		t.Errorf("the forecast is %v, want 148: the last two hours cost 2 each", got)
	}
	look(3*time.Hour, append(machines[1:], cost.Machine{UID: "4", Key: key("b", "chat", 1), Owned: true})...)
	want = map[string]cost.Month{"a": {Spent: 2, Rate: 2}, "b": {Spent: 1, Rate: 1}}
	if diff := cmp.Diff(want, cost.Months(l.Month(l.Seen), l.Rates())); diff != "" {
		t.Errorf("in December (-want +got):\n%s", diff)
	}
}

func TestMonthEnd(t *testing.T) {
	for _, test := range []struct{ reason, now, want string }{
		{"within a month", "2026-11-25T19:00:00Z", "2026-12-01T00:00:00Z"},
		{"at its beginning", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"at the end of a year", "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"},
		{"another zone is already in the next month", "2026-12-01T00:30:00+01:00", "2026-12-01T00:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, test.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := cost.MonthEnd(now).Format(time.RFC3339); got != test.want {
			t.Errorf("%s: %s, want %s", test.reason, got, test.want)
		}
	}
}
