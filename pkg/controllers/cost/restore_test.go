// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// TestFailedReadLosesNoPart: the next look restores a part that was found missing before another read failed.
func TestFailedReadLosesNoPart(t *testing.T) {
	w, _ := spent(t)
	w.lose(t, ledgerOf())
	w.restart()
	w.refuseRead = types.NamespacedName{Namespace: "modelberth", Name: fmt.Sprint("berth-cost-", cost.Shards-1)}
	if w.refuseRead == ledgerOf() {
		t.Fatal("the refused part must come after the lost one")
	}
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); err == nil {
		t.Error("no error")
	}
	w.refuseRead = types.NamespacedName{}
	w.pass(t, 0)
	w.checkMonth(t, "after the next look", 3.6, "")
}

// TestTokensAfterFailedRestore: a round of tokens after a failed restore records nothing, and does not panic.
func TestTokensAfterFailedRestore(t *testing.T) {
	w, _ := spent(t)
	w.fill(t, ledgerOf(), "{")
	w.restart()
	w.pass(t, 0)
	w.lose(t, ledgerOf())
	w.refuseCopies = true
	w.clock.SetTime(w.clock.Now().Add(lookAgain))
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); err == nil {
		t.Error("no error")
	}
	if err := w.keeper.enter(t.Context(), nil); err != nil {
		t.Error(err)
	}
	w.refuseCopies = false
	w.pass(t, 0)
	w.checkMonth(t, "after the next look", 3.6, "")
}

// TestMergedAccountIsNotCountedTwice covers a copy whose merged account includes costs from existing parts.
func TestMergedAccountIsNotCountedTwice(t *testing.T) {
	w := newWorld(t, workspace("team-b", "demo"), namespaceOf("team-b", "10", "stop"))
	if shardOf("team-b", cost.Others) == shardOf("team-b", "demo") {
		t.Fatal("the merged account must hash to a part that was never written")
	}
	const accounts = `{"version":1,"seen":"2026-11-25T11:00:00Z","accounts":[{"namespace":"team-b","workspace":%q,"microUSDPerHour":1,` +
		`"periods":{"2026-11":{"idle":{"ms":1,"nusd":1000000000}}}}]}`
	if err := w.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "modelberth", Name: fmt.Sprint("berth-cost-", shardOf("team-b", "demo"))},
		Data:       map[string]string{v1beta1.CostLedgerKey: fmt.Sprintf(accounts, cost.Others)},
	}); err != nil {
		t.Fatal(err)
	}
	w.copied(t, "team-b", fmt.Sprintf(accounts, cost.Others))
	w.pass(t, 0)
	got, _, err := w.keeper.Month("team-b", w.clock.Now())
	if err != nil || got.Spent != 1 {
		t.Errorf("$%v spent, error %v; want $1: no part was lost", got.Spent, err)
	}
}

// TestForbiddenCopy: an unreadable copy in one namespace does not stop the ledger of the others.
func TestForbiddenCopy(t *testing.T) {
	w, _ := spent(t)
	w.forbidCopies = true
	w.restart()
	w.pass(t, 0)
	w.checkMonth(t, "the ledger is complete without copies", 3.6, "")
}

// TestCopyMisleadsOnlyItsNamespace: a copy from the future does not hide another namespace's time.
func TestCopyMisleadsOnlyItsNamespace(t *testing.T) {
	other := ""
	for i := 0; shardOf("team-b", other) != shardOf("team-a", "chat"); i++ {
		other = fmt.Sprint("chat-", i)
	}
	a, b := workspace("team-a", "chat"), workspace("team-b", other)
	w := newWorld(t, a, b, namespaceOf("team-a", "10", "stop"), namespaceOf("team-b", "10", "stop"))
	w.pass(t, 0)
	w.costs = []capacity.MachineCost{machineOf(a, noon)}
	w.pass(t, time.Hour)
	w.copied(t, "team-b", fmt.Sprintf(
		`{"version":1,"seen":"2036-01-01T00:00:00Z","accounts":[{"namespace":"team-b","workspace":%q,"microUSDPerHour":1,`+
			`"periods":{"2026-11":{"idle":{"ms":1,"nusd":1000000000}}}}]}`, other))
	w.lose(t, ledgerOf())
	w.restart()
	w.pass(t, time.Hour)
	got, _, err := w.keeper.Month("team-a", w.clock.Now())
	if err != nil || got.Spent < 7.2-1e-9 || got.Spent > 7.2+1e-9 {
		t.Errorf("team-a: $%v spent, error %v; want $7.2", got.Spent, err)
	}
}

// copied writes a copy into a namespace without one.
func (w *world) copied(t *testing.T, namespace, content string) {
	t.Helper()
	if err := w.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1beta1.CostConfigMap, Labels: map[string]string{v1beta1.LabelCost: w.keeper.Name},
		},
		Data: map[string]string{v1beta1.CostLedgerKey: content},
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRepairIsSeenWithoutBudgets: looks continue while a part is damaged, so that the alert ends after the repair.
func TestRepairIsSeenWithoutBudgets(t *testing.T) {
	w := newWorld(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "modelberth", Name: "berth-cost-7"}, Data: map[string]string{v1beta1.CostLedgerKey: "{"}})
	if next := w.pass(t, 0); next <= 0 || next > lookAgain {
		t.Errorf("the next look is in %s", next)
	}
}

// TestTokensAreRestored: the tokens of a running engine count once, although a part of the ledger continues from a copy.
func TestTokensAreRestored(t *testing.T) {
	w, ws := spent(t)
	ws.Status.Plan = &v1beta1.PlanStatus{Engine: "vllm"}
	w.costs = []capacity.MachineCost{machineOf(ws, w.clock.Now())}
	w.costs[0].UID = "another"
	w.pass(t, 0)
	count := func(output int64) {
		t.Helper()
		err := w.keeper.enter(t.Context(), []*asked{{ws: ws, process: "pod/0", tokens: engineprobe.Tokens{Output: output, Started: "1"}, ok: true}})
		if err != nil {
			t.Fatal(err)
		}
	}
	count(100)
	w.pass(t, 5*time.Minute)
	w.lose(t, ledgerOf())
	w.restart()
	w.pass(t, time.Minute)
	count(150)
	w.pass(t, 5*time.Minute)
	if got := w.stored(t, "modelberth")["output"]; got != 150 {
		t.Errorf("%v tokens, want 150", got)
	}
}

// TestCopyOfFormerVersion: a copy without open machines, as former versions wrote it, ends at its time. The machines
// are charged from then on, and no minute counts twice.
func TestCopyOfFormerVersion(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.copied(t, "team-a", `{"version":1,"seen":"2026-11-25T12:30:00Z","accounts":[{"namespace":"team-a","workspace":"chat",`+
		`"instanceType":"A100","capacityType":"on-demand","microUSDPerHour":3600000,"periods":{"2026-11-25T12":{"starting":{"ms":1800000,"nusd":1800000000}}}}]}`)
	w.pass(t, time.Hour)
	w.checkMonth(t, "an hour of one machine", 3.6, "")
}

// others is a ledger with one merged account of team-b that has cost some dollars.
func others(usd int) string {
	return fmt.Sprintf(`{"version":1,"seen":"2026-11-25T11:00:00Z","accounts":[{"namespace":"team-b","workspace":%q,"microUSDPerHour":0,`+
		`"periods":{"2026-11":{"idle":{"ms":%d,"nusd":%d}}}}]}`, cost.Others, usd, usd*1_000_000_000)
}

// TestMergedAccountSurvives: of two parts with merged costs of a namespace, one is lost. The copy has the sum.
func TestMergedAccountSurvives(t *testing.T) {
	for _, test := range []struct {
		reason  string
		objects map[int]string
		want    float64
		wantErr string
	}{
		{"one part is lost", map[int]string{3: others(1)}, 5, ""},
		{"all are lost", nil, 5, ""},
		{"none is lost", map[int]string{3: others(1), 4: others(4)}, 5, ""},
		{"another part is damaged, and may have the rest", map[int]string{3: others(1), 5: "{"}, 0, unreadable},
	} {
		t.Run(test.reason, func(t *testing.T) {
			w := newWorld(t, workspace("team-b", "demo"))
			w.copied(t, "team-b", others(5))
			for i, content := range test.objects {
				w.stores(t, i, content)
			}
			for range 2 {
				w.pass(t, 0)
				got, _, err := w.keeper.Month("team-b", w.clock.Now())
				if errorText(err) != test.wantErr || got.Spent != test.want {
					t.Errorf("$%v spent, error %q; want $%v, %q", got.Spent, errorText(err), test.want, test.wantErr)
				}
				w.pass(t, urgency)
				w.restart()
			}
		})
	}
}

// TestLossOfMergedCostsIsLogged: while another part is damaged, merged costs are not restored, and a log line says so.
func TestLossOfMergedCostsIsLogged(t *testing.T) {
	w := newWorld(t, workspace("team-b", "demo"))
	w.copied(t, "team-b", others(5))
	w.stores(t, 5, "{")
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	if _, err := w.keeper.Reconcile(ctx, named(machines)); err != nil {
		t.Fatal(err)
	}
	isLoss := func(line string) bool { return strings.Contains(line, cost.Others) && strings.Contains(line, "team-b") }
	if !slices.ContainsFunc(lines, isLoss) {
		t.Errorf("logged %q", lines)
	}
}

// stores creates a part of the ledger.
func (w *world) stores(t *testing.T, part int, content string) {
	t.Helper()
	if err := w.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "modelberth", Name: fmt.Sprint("berth-cost-", part)}, Data: map[string]string{v1beta1.CostLedgerKey: content},
	}); err != nil {
		t.Fatal(err)
	}
}
