// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/cost"
)

// costBudget is the budget of a namespace for the current month, and its use.
type costBudget struct {
	Namespace string  `json:"namespace"`
	Month     string  `json:"month"`
	USD       float64 `json:"usd"`
	Spent     float64 `json:"spentUSD"`
	// Share is Spent divided by USD.
	Share  float64 `json:"share"`
	Action string  `json:"action"`
}

// budgets returns the budgets of the namespaces with their use. The second result is the reason if they are unknown.
// The error is about an invalid budget.
func (c *costCommand) budgets(ctx context.Context, cluster *Cluster, ledger *cost.Ledger, now time.Time) ([]costBudget, string, error) {
	namespaces, unknown := c.namespaces(ctx, cluster)
	months := cost.Months(ledger.Month(now), nil)
	var out []costBudget
	for i := range namespaces {
		name := namespaces[i].Name
		budget, err := cost.BudgetOf(namespaces[i].Annotations)
		if err != nil {
			return nil, "", clusterError("namespace %s: %w", name, err)
		}
		if budget == nil {
			continue
		}
		spent := months[name].Spent
		out = append(out, costBudget{
			Namespace: name, Month: now.UTC().Format("2006-01"), USD: budget.USD, Spent: spent, Share: spent / budget.USD, Action: budget.Action(),
		})
	}
	slices.SortFunc(out, func(a, b costBudget) int { return strings.Compare(a.Namespace, b.Namespace) })
	return out, unknown, nil
}

// namespaces reads the namespaces of the report. A user who may read costs need not have the right to read namespaces.
func (c *costCommand) namespaces(ctx context.Context, cluster *Cluster) (read []corev1.Namespace, unknown string) {
	if c.all {
		list := &corev1.NamespaceList{}
		if err := cluster.Objects.List(ctx, list); err != nil {
			return nil, worded(err, "namespaces").Error()
		}
		return list.Items, ""
	}
	namespace := &corev1.Namespace{}
	if err := cluster.Objects.Get(ctx, types.NamespacedName{Name: cluster.Namespace}, namespace); err != nil {
		return nil, worded(err, "namespace "+cluster.Namespace).Error()
	}
	return []corev1.Namespace{*namespace}, ""
}

// showBudgets writes a table of budgets, if there are any.
func showBudgets(w io.Writer, budgets []costBudget) error {
	if len(budgets) == 0 {
		return nil
	}
	rows := [][]string{{"BUDGET OF", "MONTH (UTC)", "BUDGET", "SPENT", "USED", "THEN"}}
	for _, budget := range budgets {
		share := strconv.Itoa(int(100*budget.Share)) + " %"
		rows = append(rows, []string{
			budget.Namespace, budget.Month, inCents(budget.USD), inCents(budget.Spent), share, budget.Action,
		})
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return table(w, "", rows)
}
