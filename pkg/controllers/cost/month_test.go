// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/cost"
)

func namespaceOf(name, budget, action string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		v1beta1.AnnotationMonthlyBudget: budget, v1beta1.AnnotationBudgetAction: action,
	}}}
}

// TestMonth checks the known costs of a namespace before the first look, while machines run, after the last look, and
// in the next month.
func TestMonth(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	check := func(reason, namespace string, want cost.Month, wantErr string) {
		t.Helper()
		got, _, err := w.keeper.Month(namespace, w.clock.Now())
		if text := errorText(err); text != wantErr {
			t.Errorf("%s: error %q, want %q", reason, text, wantErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	check("before the first look", "team-a", cost.Month{}, "the cost ledger has not been read yet")
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, 0)
	w.pass(t, time.Hour)
	check("an hour of one machine", "team-a", cost.Month{Spent: 3.6, Rate: 3.6}, "")
	check("another namespace", "team-b", cost.Month{}, "")
	w.clock.SetTime(w.clock.Now().Add(16 * time.Minute))
	check("nobody has looked", "team-a", cost.Month{}, "the cost ledger was last updated at 2026-11-25 13:00 UTC, which is too long ago: the controller's log has the reason")
	w.pass(t, 44*time.Minute)
	w.restart()
	check("a restart, before the first look", "team-a", cost.Month{}, "the cost ledger has not been read yet")
	w.pass(t, 0)
	check("after a restart", "team-a", cost.Month{Spent: 7.2, Rate: 3.6}, "")
	w.costs = nil
	w.pass(t, 0)
	w.clock.SetTime(noon.Add(24 * time.Hour))
	check("without machines, looks go on only for a budget", "team-a", cost.Month{},
		"the cost ledger was last updated at 2026-11-25 14:00 UTC, which is too long ago: the controller's log has the reason")
	w.pass(t, 0)
	check("after the next look", "team-a", cost.Month{Spent: 7.2}, "")
	w.clock.SetTime(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	w.pass(t, 0)
	check("in the next month", "team-a", cost.Month{}, "")
}

// unreadable is the error while a part of the ledger is damaged.
const unreadable = "a part of the cost ledger cannot be read: have the administrator restore or delete the ConfigMap that the controller's " +
	"log names"

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestMonthOfDamagedBooks: the costs of every namespace are unknown, because any may have costs in the damaged part.
func TestMonthOfDamagedBooks(t *testing.T) {
	w := newWorld(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "modelberth", Name: "berth-cost-7"}, Data: map[string]string{v1beta1.CostLedgerKey: "{"},
	})
	w.pass(t, 0)
	_, _, err := w.keeper.Month("team-a", w.clock.Now())
	if want := unreadable; errorText(err) != want {
		t.Errorf("error %q, want %q", errorText(err), want)
	}
}

func TestBudgetMetrics(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws, namespaceOf("team-a", "500", "stop"), namespaceOf("team-b", "7.5", "alert"), namespaceOf("team-c", "a lot", "stop"))
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, 0)
	w.pass(t, time.Hour)
	got := map[string]float64{}
	for name, value := range gathered(t, w.keeper, false) {
		switch name {
		case `modelberth_cost_month_forecast_usd{namespace="team-a"}`, `modelberth_budget_month_usd{action="stop",namespace="team-a"}`,
			`modelberth_budget_month_usd{action="alert",namespace="team-b"}`, `modelberth_budget_month_usd{action="stop",namespace="team-c"}`:
			got[name] = math.Round(100*value) / 100
		}
	}
	want := map[string]float64{
		// From noon of the 25th to the end of the month: five days and twelve hours.
		`modelberth_cost_month_forecast_usd{namespace="team-a"}`:        3.6 * 132,
		`modelberth_budget_month_usd{action="stop",namespace="team-a"}`: 500, `modelberth_budget_month_usd{action="alert",namespace="team-b"}`: 7.5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
