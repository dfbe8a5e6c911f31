// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestCostLedger follows a machine through its life, with two controllers one after the other, a foreign change of the
// ledger between two writes, and only the chart's permissions.
func TestCostLedger(t *testing.T) {
	w := enter(t).install(t, "modelberth-books", "cost.enabled=true", "cost.labels={team}")
	o := w.options()
	// The interval is shorter than a chart may set it, because the story is short.
	o.Cost = options.Cost{Namespace: w.namespace, Name: "modelberth-books-cost", Interval: 2 * time.Second, Labels: []string{"team"}, Publish: true}
	life := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	namespace := w.world.namespace(t)
	ws := named(namespace, "chat", dear)
	ws.Labels = map[string]string{"team": "search"}
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	claims := &karpv1.NodeClaimList{}
	if err := w.client.List(t.Context(), claims, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)}); err != nil || len(claims.Items) != 1 {
		t.Fatalf("%d NodeClaims, %v", len(claims.Items), err)
	}
	launched := claims.Items[0].StatusConditions().Get(karpv1.ConditionTypeLaunched).LastTransitionTime.Time
	w.untilBooked(t, namespace, "the model serves", func(c *cost.Cells) bool { return c.Serving.Millis > 0 })
	w.touchLedger(t)
	w.untilBooked(t, namespace, "the books go on after a stranger's change", func(c *cost.Cells) bool { return c.Serving.Millis > 4000 })
	life.end(t)
	w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)

	if err := w.client.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine is gone", func() (bool, string) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(&claims.Items[0]), &karpv1.NodeClaim{})
		return client.IgnoreNotFound(err) == nil && err != nil, fmt.Sprint(err)
	})
	ended := time.Now()
	eventually(t, "nothing is open", func() (bool, string) {
		open := 0
		for _, l := range w.ledgers(t, w.namespace) {
			for _, n := range l.Open() {
				open += n
			}
		}
		return open == 0, fmt.Sprint(open, " machines")
	})
	want := ended.Sub(launched).Seconds()
	for _, at := range []string{w.namespace, namespace} {
		eventually(t, "everything is booked in "+at, func() (bool, string) {
			sum := w.booked(t, at, namespace)
			got := float64(sum.Total().Millis) / 1000
			// Times on objects have whole seconds, and a look follows an event within a second.
			return math.Abs(got-want) <= 3 && sum.Serving.Millis > 0, fmt.Sprintf("%.1f s, want %.1f: %+v", got, want, sum)
		})
	}
	copied := w.ledgers(t, namespace)
	charge := copied[0].Charges(time.Time{})[0]
	if charge.Labels != "team=search" || charge.Price != cost.MicroUSD(3.673) || charge.Source != "NodeClaim" || charge.CapacityType != "on-demand" {
		t.Errorf("the account is %+v", charge.Key)
	}
}

// ledgers are those in a namespace.
func (a *account) ledgers(t *testing.T, namespace string) []*cost.Ledger {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := a.client.List(t.Context(), list, client.InNamespace(namespace), client.HasLabels{v1beta1.LabelCost}); err != nil {
		t.Fatal(err)
	}
	var out []*cost.Ledger
	for i := range list.Items {
		l, err := cost.Decode([]byte(list.Items[i].Data[v1beta1.CostLedgerKey]))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}

// booked adds up the entries for a namespace in the ledgers of another one.
func (a *account) booked(t *testing.T, at, namespace string) *cost.Cells {
	t.Helper()
	sum := &cost.Cells{}
	for _, l := range a.ledgers(t, at) {
		for _, charge := range l.Charges(time.Time{}) {
			if charge.Namespace == namespace {
				sum.Add(&charge.Cells)
			}
		}
	}
	return sum
}

func (a *account) untilBooked(t *testing.T, namespace, what string, is func(*cost.Cells) bool) {
	t.Helper()
	eventually(t, what, func() (bool, string) {
		sum := a.booked(t, a.namespace, namespace)
		return is(sum), fmt.Sprintf("%+v", sum)
	})
}

// touchLedger changes the ledger's objects, as a person may.
func (a *account) touchLedger(t *testing.T) {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := a.client.List(t.Context(), list, client.InNamespace(a.namespace), client.HasLabels{v1beta1.LabelCost}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"example.com/touched": "yes"}}}`))
		if err := a.client.Patch(t.Context(), &list.Items[i], patch); err != nil {
			t.Fatal(err)
		}
	}
}
