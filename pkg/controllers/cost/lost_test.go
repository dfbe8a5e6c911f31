// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// spent returns a world in which a machine of team-a has cost $3.60 and is gone. team-a has a budget.
func spent(t *testing.T) (w *world, ws *v1beta1.Workspace) {
	t.Helper()
	ws = workspace("team-a", "chat")
	w = newWorld(t, ws, namespaceOf("team-a", "10", "stop"))
	w.pass(t, 0)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, time.Hour)
	w.costs = nil
	w.pass(t, 0)
	w.pass(t, urgency)
	w.checkMonth(t, "before anything happens", 3.6, "")
	w.written()
	return w, ws
}

// ledgerOf returns the ConfigMap with the costs of team-a/chat.
func ledgerOf() types.NamespacedName {
	return types.NamespacedName{Namespace: "modelberth", Name: fmt.Sprint("berth-cost-", shardOf("team-a", "chat"))}
}

// lose deletes a ConfigMap.
func (w *world) lose(t *testing.T, key types.NamespacedName) {
	t.Helper()
	if err := w.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
		t.Fatal(err)
	}
	delete(w.versions, key)
}

// fill replaces the content of a ConfigMap.
func (w *world) fill(t *testing.T, key types.NamespacedName, content string) {
	t.Helper()
	object := &corev1.ConfigMap{}
	if err := w.WithWatch.Get(t.Context(), key, object); err != nil {
		t.Fatal(err)
	}
	object.ResourceVersion = ""
	object.Data = map[string]string{v1beta1.CostLedgerKey: content}
	if err := w.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	w.versions[key] = "of another client"
}

// checkMonth compares the amount that team-a has spent.
func (w *world) checkMonth(t *testing.T, reason string, want float64, wantErr string) {
	t.Helper()
	got, _, err := w.keeper.Month("team-a", w.clock.Now())
	if errorText(err) != wantErr || got.Spent < want-1e-9 || got.Spent > want+1e-9 {
		t.Errorf("%s: $%v spent, error %q; want $%v, %q", reason, got.Spent, errorText(err), want, wantErr)
	}
}

// checkDamaged compares the metric of damaged parts.
func (w *world) checkDamaged(t *testing.T, reason string, unreadable, restored float64) {
	t.Helper()
	got := gathered(t, w.keeper, false)
	maps.DeleteFunc(got, func(name string, value float64) bool {
		return value == 0 || name != damaged("unreadable") && name != damaged("restored")
	})
	want := map[string]float64{damaged("unreadable"): unreadable, damaged("restored"): restored}
	maps.DeleteFunc(want, func(_ string, value float64) bool { return value == 0 })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: damaged parts (-want +got):\n%s", reason, diff)
	}
}

func damaged(state string) string {
	return fmt.Sprintf("modelberth_cost_ledger_damaged_parts{state=%q}", state)
}

// again lets the next write of a process find another ConfigMap than its own, and then looks again.
func (w *world) again(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	machine := machineOf(ws, w.clock.Now())
	machine.UID = "another"
	w.costs = []capacity.MachineCost{machine}
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	w.pass(t, 0)
	w.pass(t, urgency)
}

// TestLedgerLostWhileRunning: the process that wrote a part continues from its memory.
func TestLedgerLostWhileRunning(t *testing.T) {
	for _, test := range []struct {
		reason string
		lose   func(*world)
	}{
		{"deleted", func(w *world) { w.lose(t, ledgerOf()) }},
		{"damaged", func(w *world) { w.fill(t, ledgerOf(), "{") }},
		{"emptied", func(w *world) { w.fill(t, ledgerOf(), "") }},
	} {
		t.Run(test.reason, func(t *testing.T) {
			w, ws := spent(t)
			test.lose(w)
			w.again(t, ws)
			const both = 7.2 + 0.015 // the first machine, and an hour and fifteen seconds of the second one
			w.checkMonth(t, "from memory", both, "")
			w.checkDamaged(t, "from memory", 0, 1)
			w.restart()
			w.pass(t, 0)
			w.checkMonth(t, "it was written", both, "")
			w.checkDamaged(t, "it was written", 0, 0)
		})
	}
}

// TestNewerLedgerIsKept: a process does not overwrite the ledger of a newer version.
func TestNewerLedgerIsKept(t *testing.T) {
	w, ws := spent(t)
	w.fill(t, ledgerOf(), `{"version":2,"unheard":"of"}`)
	w.again(t, ws)
	w.checkMonth(t, "another version", 0, unreadable)
	w.checkDamaged(t, "another version", 1, 0)
	stored := &corev1.ConfigMap{}
	if err := w.Get(t.Context(), ledgerOf(), stored); err != nil || stored.Data[v1beta1.CostLedgerKey] != `{"version":2,"unheard":"of"}` {
		t.Errorf("error %v, data %v", err, stored.Data)
	}
}

// TestLedgerLostBetweenProcesses: the next process continues from the copies in the namespaces, to the second.
func TestLedgerLostBetweenProcesses(t *testing.T) {
	w, ws := spent(t)
	machine := machineOf(ws, w.clock.Now())
	machine.UID = "another"
	w.costs = []capacity.MachineCost{machine}
	w.pass(t, 0)
	w.pass(t, time.Hour)
	w.lose(t, ledgerOf())
	w.restart()
	w.pass(t, 10*time.Minute)
	const both = 7.2 + 0.6 // the first machine, and 70 minutes of the second one
	w.checkMonth(t, "from the copy", both, "")
	w.checkDamaged(t, "from the copy", 0, 1)
	w.pass(t, urgency)
	w.restart()
	w.pass(t, 0)
	w.checkMonth(t, "it was written", both+0.015, "")
	w.checkDamaged(t, "it was written", 0, 0)
}

// TestCopiesAreNotTrusted covers copies with the costs of other namespaces, or with a time in the future.
func TestCopiesAreNotTrusted(t *testing.T) {
	w, _ := spent(t)
	copied := types.NamespacedName{Namespace: "team-a", Name: v1beta1.CostConfigMap}
	w.fill(t, copied, `{"version":1,"seen":"2036-01-01T00:00:00Z","accounts":[`+
		`{"namespace":"team-a","workspace":"chat","microUSDPerHour":1,"periods":{"2026-11":{"idle":{"ms":1,"nusd":1000000000}}}},`+
		`{"namespace":"team-b","workspace":"chat","microUSDPerHour":1,"periods":{"2026-11":{"idle":{"ms":1,"nusd":2000000000}}}}]}`)
	w.lose(t, ledgerOf())
	w.restart()
	w.pass(t, 0)
	w.checkMonth(t, "its own figures", 1, "")
	if got, _, err := w.keeper.Month("team-b", w.clock.Now()); err != nil || got.Spent != 0 {
		t.Errorf("team-b has spent %v, error %v", got, err)
	}
	w.pass(t, urgency)
	w.fill(t, copied, "{")
	w.lose(t, ledgerOf())
	w.restart()
	w.pass(t, 0)
	w.checkMonth(t, "a damaged copy", 0, "")
}

// TestCopyCannotBeRead: costs stay unknown until a copy can be read, if the process starts without the ledger.
func TestCopyCannotBeRead(t *testing.T) {
	w, _ := spent(t)
	w.lose(t, ledgerOf())
	w.restart()
	w.refuseCopies = true
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); err == nil {
		t.Error("no error")
	}
	w.checkMonth(t, "before the first look", 0, "the cost ledger has not been read yet")
	w.refuseCopies = false
	w.pass(t, 0)
	w.checkMonth(t, "after it", 3.6, "")
}

// TestUnreadableLedger: purchases stop until the ConfigMap is restored or deleted, without a restart.
func TestUnreadableLedger(t *testing.T) {
	w, _ := spent(t)
	good := &corev1.ConfigMap{}
	if err := w.Get(t.Context(), ledgerOf(), good); err != nil {
		t.Fatal(err)
	}
	w.fill(t, ledgerOf(), "{")
	w.restart()
	w.pass(t, 0)
	w.checkMonth(t, "damaged at the start", 0, unreadable)
	w.checkDamaged(t, "damaged at the start", 1, 0)
	if got := w.written(); len(got) > 0 {
		t.Errorf("written: %v", got)
	}
	w.fill(t, ledgerOf(), good.Data[v1beta1.CostLedgerKey])
	w.pass(t, lookAgain)
	w.checkMonth(t, "restored", 3.6, "")
	w.fill(t, ledgerOf(), "{")
	w.restart()
	w.pass(t, 0)
	w.lose(t, ledgerOf())
	w.pass(t, lookAgain)
	w.checkMonth(t, "deleted", 3.6, "")
	w.checkDamaged(t, "deleted", 0, 1)
}

// TestFailingLooks: costs are unknown while the machines cannot be read, even if there were none before.
func TestFailingLooks(t *testing.T) {
	w, _ := spent(t)
	w.away = errors.New("the cache is away")
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); err == nil {
		t.Error("no error")
	}
	w.checkMonth(t, "a failed look", 0, "the cost ledger cannot be read: the controller's log has the reason")
	w.away = nil
	w.pass(t, 0)
	w.checkMonth(t, "the next look", 3.6, "")
}

// TestLooksForBudgets: with a budget, looks continue without machines, but write nothing.
func TestLooksForBudgets(t *testing.T) {
	w, _ := spent(t)
	for range 60 {
		if next := w.pass(t, lookAgain); next <= 0 || next > lookAgain {
			t.Fatalf("the next look is in %s", next)
		}
	}
	w.checkMonth(t, "an hour later", 3.6, "")
	if got := w.written(); len(got) > 0 {
		t.Errorf("written: %v", got)
	}
}
