// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/csv"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cost"
)

// spent returns a ledger of two teams. It has a model that starts, serves and is idle, a wasted machine, and a leaked
// machine.
func spent() *cost.Ledger {
	l := cost.New()
	account := func(namespace, workspace, labels string, price float64) cost.Key {
		return cost.Key{
			Namespace: namespace, Workspace: workspace, Labels: labels, InstanceType: "Standard_NC24ads_A100_v4", CapacityType: "on-demand",
			Price: cost.MicroUSD(price), Source: "NodeClaim",
		}
	}
	chat, draw, gone := account("team-a", "chat", "team=search", 3.673), account("team-a", "draw", "", -1), account("team-b", "batch", "team=ads", 1)
	gone.CapacityType = "spot"
	begin := noon.Add(-72 * time.Hour)
	l.Observe(cost.Step{At: begin})
	look := func(after time.Duration, machines ...cost.Machine) {
		l.Observe(cost.Step{At: l.Seen.Add(after), Elapsed: after, Machines: machines})
	}
	look(0, cost.Machine{UID: "1", Key: chat, Owned: true, LaunchedAt: begin}, cost.Machine{UID: "2", Key: draw, Owned: true, LaunchedAt: begin})
	look(6*time.Minute, cost.Machine{UID: "1", Key: chat, Owned: true, Serving: true, Since: begin.Add(6 * time.Minute)})
	look(70*time.Hour, cost.Machine{UID: "1", Key: chat, Owned: true}, cost.Machine{UID: "3", Key: gone})
	look(90 * time.Minute)
	l.Count(l.Seen, cost.Engine{
		Name: cost.Name{Namespace: "team-a", Workspace: "chat"}, Key: chat, Plan: "4.2",
		Counters: []cost.Counters{{Incarnation: "1", Prompt: 90_000_000, Output: 30_000_000}},
	})
	return l
}

func storedCosts(t *testing.T, namespace, name string, l *cost.Ledger) *corev1.ConfigMap {
	t.Helper()
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1beta1.LabelCost: "modelberth-cost"}},
		Data:       map[string]string{v1beta1.CostLedgerKey: string(data)},
	}
}

// books returns a cluster with the ledger and the copy of one namespace.
func books(t *testing.T) *cluster {
	t.Helper()
	return &cluster{objects: []client.Object{
		storedCosts(t, "modelberth", "modelberth-cost-3", spent()), storedCosts(t, "team-a", v1beta1.CostConfigMap, spent().Extract("team-a")),
		// Ledgers from a tenant: one under other names, and an unreadable one.
		storedCosts(t, "team-b", "modelberth-cost-16", spent()), storedCosts(t, "team-b", "modelberth-cost-03", spent()),
		storedCosts(t, "team-b", "my-cost-3", spent()), damagedCosts(t, "team-b", "broken"),
		namespaceWith("team-a", map[string]string{v1beta1.AnnotationMonthlyBudget: "300"}), namespaceWith("modelberth", nil),
		namespaceWith("team-b", map[string]string{v1beta1.AnnotationMonthlyBudget: "1", v1beta1.AnnotationBudgetAction: "alert"}),
	}}
}

func namespaceWith(name string, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
}

func damagedCosts(t *testing.T, namespace, name string) *corev1.ConfigMap {
	t.Helper()
	out := storedCosts(t, namespace, name, cost.New())
	out.Data[v1beta1.CostLedgerKey] = "{"
	return out
}

// TestCostLedgers separates the controller's ledger from forged ledgers, and from ledgers of removed installations.
func TestCostLedgers(t *testing.T) {
	forged := func(namespace, name, ledger string) *corev1.ConfigMap {
		out := damagedCosts(t, namespace, name)
		out.Labels[v1beta1.LabelCost] = ledger
		return out
	}
	want := books(t).run(t, session{}, "cost", "-A")
	for _, test := range []struct {
		reason string
		other  client.Object
		args   []string
		// fails is a part of the error; empty for the costs of the controller's ledger.
		fails string
	}{
		{
			"a tenant forges a part", forged("team-b", "modelberth-cost-3", "modelberth-cost"), nil,
			"the cluster has several cost ledgers (modelberth/modelberth-cost, team-b/modelberth-cost): choose the controller's " +
				"namespace with --ledger-namespace, and the ledger in it with --ledger-name",
		},
		{"the namespace is named", forged("team-b", "modelberth-cost-3", "modelberth-cost"), []string{"--ledger-namespace", "modelberth"}, ""},
		{"an installation with another name left its ledger", forged("modelberth", "berth-cost-3", "berth-cost"), []string{
			"--ledger-namespace", "modelberth",
		}, "several cost ledgers (modelberth/berth-cost, modelberth/modelberth-cost):"},
		{"the ledger is named", forged("modelberth", "berth-cost-3", "berth-cost"), []string{
			"--ledger-namespace", "modelberth", "--ledger-name", "modelberth-cost",
		}, ""},
	} {
		t.Run(test.reason, func(t *testing.T) {
			cluster := books(t)
			cluster.objects = append(cluster.objects, test.other)
			got := cluster.run(t, session{}, append([]string{"cost", "-A"}, test.args...)...)
			if test.fails == "" && (got.Code != 0 || got.Out != want.Out) {
				t.Errorf("exit code %d: %s\n%s\nwant\n%s", got.Code, got.Err, got.Out, want.Out)
			}
			if test.fails != "" && (got.Code != 5 || !strings.Contains(got.Err, test.fails)) {
				t.Errorf("exit code %d, %q; want 5, %q", got.Code, got.Err, test.fails)
			}
		})
	}
}

func TestCostGolden(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
	}{
		{"cost", nil},
		{"cost-day", []string{"--since", "1d"}},
		{"cost-all", []string{"-A"}},
		{"cost-namespaces-json", []string{"-A", "--by", "namespace", "-o", "json"}},
		{"cost-labels", []string{"-A", "--by", "label=team", "--ledger-namespace", "modelberth"}},
		{"cost-csv", []string{"-A", "--since", "2026-01-01", "-o", "csv"}},
		{"cost-focus", []string{"-A", "--since", "2h", "-o", "focus"}},
		{"cost-later", []string{"--since", "30m"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := books(t).run(t, session{}, append([]string{"cost"}, test.args...)...)
			if got.Code != 0 {
				t.Errorf("exit code %d: %s", got.Code, got.Err)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
}

// TestCostFOCUS checks the required columns of FOCUS 1.3, its mandatory values, and the sums.
func TestCostFOCUS(t *testing.T) {
	got := books(t).run(t, session{}, "cost", "-A", "--since", "30d", "-o", "focus")
	rows, err := csv.NewReader(strings.NewReader(got.Out)).ReadAll()
	if err != nil || len(rows) < 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	mayBeEmpty := []string{"ChargeClass"}
	for _, column := range []string{
		"BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
		"ChargeClass", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "HostProviderName",
		"InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
		"ServiceProviderName", "SubAccountId", "SubAccountName",
	} {
		at := slices.Index(rows[0], column)
		if at < 0 {
			t.Errorf("column %s is missing", column)
			continue
		}
		for _, row := range rows[1:] {
			isUnpriced := row[slices.Index(rows[0], "SkuPriceId")] == ""
			if row[at] == "" && !slices.Contains(mayBeEmpty, column) && (!isUnpriced || !strings.HasPrefix(column, "Pricing")) {
				t.Errorf("column %s is empty in %v", column, row)
			}
		}
	}
}

// TestCostWithoutBudgets shows the costs to a user without the right to read the namespace.
func TestCostWithoutBudgets(t *testing.T) {
	cluster := books(t)
	cluster.faults = interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, is := object.(*corev1.Namespace); is {
				return forbidden("namespaces")
			}
			return inner.Get(ctx, key, object, options...)
		},
	}
	got := cluster.run(t, session{}, "cost")
	if got.Code != 0 || !strings.Contains(got.Out, "chat") || strings.Contains(got.Out, "BUDGET") {
		t.Errorf("exit code %d:\n%s", got.Code, got.Out)
	}
	if want := "Budgets are not shown: namespace team-a: permission denied"; !strings.Contains(got.Err, want) {
		t.Errorf("%q lacks %q", got.Err, want)
	}
}

// TestCostFails checks the errors and their remedies.
func TestCostFails(t *testing.T) {
	damaged := damagedCosts(t, "team-a", v1beta1.CostConfigMap)
	for _, test := range []struct {
		reason  string
		cluster *cluster
		args    []string
		code    int
		want    string
	}{
		{"nothing was published", &cluster{}, nil, 5, "namespace team-a has no recorded costs: either no machine was bought for it"},
		{"there is no ledger", &cluster{}, []string{"-A"}, 5, "there is no cost ledger: either no machine was bought"},
		{"the copy is damaged", &cluster{objects: []client.Object{damaged}}, nil, 5, "ConfigMap team-a/modelberth-cost cannot be read"},
		{"another namespace's costs are not for everybody", &cluster{faults: interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return forbidden("configmaps")
			},
		}}, []string{"-A"}, 5, "ConfigMaps: permission denied"},
		{"the budget is no number", &cluster{objects: []client.Object{
			storedCosts(t, "team-a", v1beta1.CostConfigMap, spent().Extract("team-a")),
			namespaceWith("team-a", map[string]string{v1beta1.AnnotationMonthlyBudget: "$5"}),
		}}, nil, 5, `namespace team-a: the annotation modelberth.dev/monthly-budget is "$5": set a number above 0`},
		{"no group", &cluster{}, []string{"--by", "label="}, 2, `--by: "label=" is not supported`},
		{"no time", &cluster{}, []string{"--since", "soon"}, 2, `--since: "soon" is neither a duration`},
		{"no days", &cluster{}, []string{"--since", "0d"}, 2, `--since: "0d" is neither a duration`},
		{"no format", &cluster{}, []string{"-o", "xml"}, 2, `--output: "xml" is not supported`},
		{"a namespace for nothing", &cluster{}, []string{"--ledger-namespace", "x"}, 2, "--ledger-namespace and --ledger-name need -A"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := test.cluster.run(t, session{}, append([]string{"cost"}, test.args...)...)
			if got.Code != test.code || !strings.Contains(got.Err, test.want) {
				t.Errorf("exit code %d, %q; want %d, %q", got.Code, got.Err, test.code, test.want)
			}
		})
	}
}
