// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelberth/modelberth/pkg/cost"
)

// Register registers the metrics of a Keeper. Only the leader reports them. With byWorkspace, the label workspace has
// names; otherwise it is empty, because each name adds a series.
func Register(registry prometheus.Registerer, k *Keeper, byWorkspace bool) error {
	m := meter{
		keeper: k, byWorkspace: byWorkspace,
		usd: prometheus.NewDesc("modelberth_cost_month_usd",
			"Cost in USD of launched machines this month (UTC), by state: starting, serving, idle (served before), "+
				"wasted (never served) or leaked (the Workspace is gone). Without --cost-metrics-by-workspace, the label workspace is empty.",
			[]string{"namespace", "workspace", "state"}, nil),
		seconds: prometheus.NewDesc("modelberth_cost_month_machine_seconds",
			"Machine time in seconds of launched machines this month (UTC), by the states of modelberth_cost_month_usd.",
			[]string{"namespace", "workspace", "state"}, nil),
		tokens: prometheus.NewDesc("modelberth_cost_month_tokens",
			"Tokens of prompts and answers this month (UTC), for Workspaces on bought machines.",
			[]string{"namespace", "workspace", "kind"}, nil),
		forecast: prometheus.NewDesc("modelberth_cost_month_forecast_usd",
			"Cost of launched machines in USD in the whole month (UTC), if the present ones run until its end.",
			[]string{"namespace"}, nil),
		budget: prometheus.NewDesc("modelberth_budget_month_usd",
			"Budget of a namespace for a month (UTC) in USD, by action: stop (nothing more is bought once it is spent) or alert.",
			[]string{"namespace", "action"}, nil),
		parts: prometheus.NewDesc("modelberth_cost_ledger_damaged_parts",
			"Parts of the cost ledger by state: unreadable (their ConfigMap cannot be read, and nothing is bought in namespaces whose monthly "+
				"budget stops purchases) or restored (their ConfigMap was gone or damaged, and the controller rebuilt it from its memory or from the copies in the namespaces).",
			[]string{"state"}, nil),
		unstored: prometheus.NewDesc("modelberth_cost_unstored_seconds",
			"Age in seconds of the oldest change to the cost ledger that is not stored in the cluster yet.", nil, nil),
	}
	err := registry.Register(m)
	if former, again := errors.AsType[prometheus.AlreadyRegisteredError](err); again {
		registry.Unregister(former.ExistingCollector)
		err = registry.Register(m)
	}
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// meter is a stateless collector.
type meter struct {
	keeper                                                  *Keeper
	byWorkspace                                             bool
	usd, seconds, tokens, forecast, budget, parts, unstored *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m meter) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{m.usd, m.seconds, m.tokens, m.forecast, m.budget, m.parts, m.unstored} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (m meter) Collect(out chan<- prometheus.Metric) {
	month := m.keeper.month.Load()
	if month == nil {
		return
	}
	now := m.keeper.Clock.Now()
	charges, unstored := month.seen(now)
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.unstored, unstored.Seconds())
	gauge(m.parts, float64(month.unreadable), "unreadable")
	gauge(m.parts, float64(month.restored), "restored")
	for namespace := range month.spending {
		gauge(m.forecast, month.of(namespace, now).Forecast(now), namespace)
	}
	for namespace, budget := range month.budgets {
		gauge(m.budget, budget.USD, namespace, budget.Action())
	}
	sums := map[cost.Name]*cost.Cells{}
	for i := range charges {
		charge := &charges[i]
		name := cost.Name{Namespace: charge.Namespace}
		if m.byWorkspace {
			name.Workspace = charge.Workspace
		}
		if sums[name] == nil {
			sums[name] = &cost.Cells{}
		}
		sums[name].Add(&charge.Cells)
	}
	for name, cells := range sums {
		for _, state := range cost.States() {
			amount := cells.Of(state)
			gauge(m.usd, amount.USD(), name.Namespace, name.Workspace, state.String())
			gauge(m.seconds, float64(amount.Millis)/1000, name.Namespace, name.Workspace, state.String())
		}
		gauge(m.tokens, float64(cells.Prompt), name.Namespace, name.Workspace, "prompt")
		gauge(m.tokens, float64(cells.Output), name.Namespace, name.Workspace, "output")
	}
}

// stored updates the snapshot after a write.
func (k *Keeper) stored() {
	out := *k.month.Load()
	out.changed = k.unstored()
	k.month.Store(&out)
}

// unstored returns the time of the oldest change that is not yet stored; zero if there is none.
func (k *Keeper) unstored() time.Time {
	var oldest time.Time
	for _, s := range k.shards {
		if s != nil && !s.changed.IsZero() && (oldest.IsZero() || s.changed.Before(oldest)) {
			oldest = s.changed
		}
	}
	return oldest
}
