// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// budget sets the annotations of a namespace; an empty value removes one.
func (w *world) budget(t *testing.T, namespace, amount, action string) {
	t.Helper()
	value := func(text string) string {
		if text == "" {
			return "null"
		}
		return fmt.Sprintf("%q", text)
	}
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %s, %q: %s}}}`,
		v1beta1.AnnotationMonthlyBudget, value(amount), v1beta1.AnnotationBudgetAction, value(action))
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := w.client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// monthly returns options with a cost ledger, and a clock in a month that does not end within the story.
func (w *world) monthly(t *testing.T) (options.Controller, *stepClock) {
	t.Helper()
	now := &stepClock{}
	if left := cost.MonthEnd(now.Now()).Sub(now.Now()); left < 4*time.Hour {
		now.step(left + time.Minute)
	}
	o := w.options()
	o.Cost = options.Cost{Namespace: w.namespace(t), Name: "budget", Interval: time.Second}
	return o, now
}

// spendBudget has a Workspace on the dear machine spend a budget of $4.00 for its namespace.
func (w *world) spendBudget(t *testing.T, o options.Controller, now *stepClock, ws *v1beta1.Workspace) {
	t.Helper()
	w.budget(t, ws.Namespace, "4", "")
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	eventually(t, "the ledger has the machine", func() (bool, string) {
		list := &corev1.ConfigMapList{}
		err := w.client.List(t.Context(), list, client.InNamespace(o.Cost.Namespace), client.HasLabels{v1beta1.LabelCost})
		return err == nil && len(list.Items) > 0, fmt.Sprint(len(list.Items), " parts, ", err)
	})
	now.step(70 * time.Minute) // at $3.67/h, all of it
}

// TestMonthlyBudget spends the budget of a namespace: running machines stay, a second Workspace waits, also after a restart
// and with a damaged ledger, and a raised budget lets it continue. Another namespace is only watched.
func TestMonthlyBudget(t *testing.T) {
	w := enter(t)
	o, now := w.monthly(t)
	life := w.beginWith(t, faults.NewRecorder(), now, o)
	namespace := w.namespace(t)
	first, second := named(namespace, "first", dear), named(namespace, "second", dear)
	w.spendBudget(t, o, now, first)

	w.create(t, second)
	w.untilCondition(t, second, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonMonthlyBudget)
	message := condition(second, v1beta1.ConditionNodeClaimReady).Message
	for _, part := range []string{
		"of the monthly budget of $4.00 for namespace " + namespace + " was spent in " + now.Now().UTC().Format("January 2006") + " (UTC)",
		"nothing more is bought before " + cost.MonthEnd(now.Now()).Format("2006-01-02") + " 00:00 UTC, and running machines stay",
		"have the administrator raise the namespace's annotation modelberth.dev/monthly-budget to ",
	} {
		if !strings.Contains(message, part) {
			t.Errorf("message %q lacks %q", message, part)
		}
	}
	watched := w.namespace(t)
	w.budget(t, watched, "0.01", v1beta1.BudgetAlerts)
	third := named(watched, "third", dear)
	w.create(t, third)
	w.untilCondition(t, third, v1beta1.ConditionReady, metav1.ConditionTrue, "")

	life.end(t)
	life = w.beginWith(t, faults.NewRecorder(), now, o)
	w.waits(t, first, second)

	life.end(t)
	w.damage(t, o.Cost.Namespace)
	life = w.beginWith(t, faults.NewRecorder(), now, o)
	w.untilCondition(t, second, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonMonthlyBudgetUnknown)
	w.waits(t, first, second)
	if err := w.client.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(o.Cost.Namespace), client.HasLabels{v1beta1.LabelCost}); err != nil {
		t.Fatal(err)
	}
	life.end(t)
	w.beginWith(t, faults.NewRecorder(), now, o)
	w.budget(t, namespace, "400", "")
	w.untilCondition(t, second, v1beta1.ConditionReady, metav1.ConditionTrue, "")
}

// TestSpentBudgetKeepsMachines edits a Workspace. The budget has no room for the new machine beside the serving one:
// because of the price limit, or because the back end cannot hold both. While the budget is spent, the serving one
// stays: it could not be replaced. A raised budget lets the edit continue.
func TestSpentBudgetKeepsMachines(t *testing.T) {
	for _, backEnd := range []string{options.BackendNodeClaim, options.BackendNodePool, options.BackendPods} {
		t.Run(backEnd, func(t *testing.T) {
			w := enter(t)
			o, now := w.monthly(t)
			o.CapacityBackend = backEnd
			ws := plannerForm(w.namespace(t), "chat")
			ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{dear}}
			edited := &v1beta1.PlacementSpec{InstanceTypes: []string{cheap}}
			switch backEnd {
			case options.BackendNodeClaim:
				edited.MaxHourlyPrice = "4"
			case options.BackendPods:
				o.NodeClasses = nil
				w.autoscaler.Serve(ws.Namespace, w.group(t, dear, sim.Scales), w.group(t, cheap, sim.Scales))
			}
			w.beginWith(t, faults.NewRecorder(), now, o)
			w.spendBudget(t, o, now, ws)
			w.editKeeps(t, ws, edited)
			w.budget(t, ws.Namespace, "400", "")
			eventually(t, "the edit continues", func() (bool, string) {
				w.read(t, ws)
				all := ws.Status.Attempts
				return len(all) == 2 && all[1].InstanceType == cheap && strings.Contains(all[0].Message, "the serving machines are released before others are bought") &&
					meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionReady), saying(ws)
			})
		})
	}
}

// editKeeps edits a Workspace in a namespace with a spent budget, and checks that its pod continues to serve.
func (w *world) editKeeps(t *testing.T, ws *v1beta1.Workspace, placement *v1beta1.PlacementSpec) {
	t.Helper()
	before, pod := ws.DeepCopy(), w.podUID(t, ws)
	ws.Resource.Placement = placement
	if err := w.client.Patch(t.Context(), ws, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the edit waits for the budget", func() (bool, string) {
		w.read(t, ws)
		return slices.ContainsFunc(ws.Status.Conditions, func(c metav1.Condition) bool {
			return c.Reason == v1beta1.ReasonMonthlyBudget && c.ObservedGeneration == ws.Generation
		}), saying(ws)
	})
	during(t, "the machine serves on", 3*time.Second, func() (bool, string) {
		w.read(t, ws)
		return meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionInferenceReady) &&
			len(ws.Status.Attempts) == 1 && ws.Status.Attempts[0].Reason == "" && w.podUID(t, ws) == pod, saying(ws)
	})
}

// waits reports an error unless the first Workspace serves and the second buys nothing.
func (w *world) waits(t *testing.T, first, second *v1beta1.Workspace) {
	t.Helper()
	during(t, "the first serves, and the second waits", 3*time.Second, func() (bool, string) {
		w.read(t, first)
		w.read(t, second)
		return meta.IsStatusConditionTrue(first.Status.Conditions, v1beta1.ConditionReady) && len(second.Status.Attempts) == 0,
			saying(first) + saying(second)
	})
}

// damage makes every part of a ledger unreadable.
func (w *world) damage(t *testing.T, namespace string) {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(namespace), client.HasLabels{v1beta1.LabelCost}); err != nil || len(list.Items) == 0 {
		t.Fatalf("%d parts, %v", len(list.Items), err)
	}
	for i := range list.Items {
		list.Items[i].Data = map[string]string{v1beta1.CostLedgerKey: "{"}
		if err := w.client.Update(t.Context(), &list.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBudgetWithoutLedger buys nothing, because the spending is unknown.
func TestBudgetWithoutLedger(t *testing.T) {
	w := enter(t)
	w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, w.options())
	namespace := w.namespace(t)
	ws := named(namespace, "chat", dear)
	for _, step := range []struct{ amount, action, reason, want string }{
		{"5 USD", "", v1beta1.ReasonMonthlyBudgetInvalid, `modelberth.dev/monthly-budget is "5 USD": set a number above 0 in USD per month`},
		{"500", "warn", v1beta1.ReasonMonthlyBudgetInvalid, `modelberth.dev/budget-action is "warn": set stop or alert`},
		{"500", "", v1beta1.ReasonMonthlyBudgetUnknown, "this installation has no cost ledger: have the administrator set the chart's cost.enabled"},
	} {
		w.budget(t, namespace, step.amount, step.action)
		if ws.UID == "" {
			w.create(t, ws)
		}
		w.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, step.reason)
		eventually(t, "the message says "+step.want, func() (bool, string) {
			w.read(t, ws)
			message := condition(ws, v1beta1.ConditionStalled).Message
			return strings.Contains(message, step.want), message
		})
	}
	w.budget(t, namespace, "500", v1beta1.BudgetAlerts)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
}
