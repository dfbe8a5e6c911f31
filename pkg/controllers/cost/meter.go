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

// Register registers the metrics of a Keeper. A replica that does not lead reports nothing. With byWorkspace, the label
// workspace has names; otherwise it is empty, because each name is a further series.
func Register(registry prometheus.Registerer, k *Keeper, byWorkspace bool) error {
	m := meter{
		keeper: k, byWorkspace: byWorkspace,
		usd: prometheus.NewDesc("modelberth_cost_month_usd",
			"What launched machines cost in USD in this month (UTC): starting, serving, idle after that, wasted because they never served, "+
				"or leaked because their Workspace is gone. The workspace is empty unless --cost-metrics-by-workspace is set.",
			[]string{"namespace", "workspace", "state"}, nil),
		seconds: prometheus.NewDesc("modelberth_cost_month_machine_seconds",
			"Seconds of launched machines in this month (UTC), by the same states.",
			[]string{"namespace", "workspace", "state"}, nil),
		tokens: prometheus.NewDesc("modelberth_cost_month_tokens",
			"Tokens of prompts and answers in this month (UTC), of Workspaces on bought machines.",
			[]string{"namespace", "workspace", "kind"}, nil),
		unstored: prometheus.NewDesc("modelberth_cost_unstored_seconds",
			"Age in seconds of the oldest change of the cost ledger that is not stored in the cluster yet.", nil, nil),
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

// meter is a collector without state.
type meter struct {
	keeper                         *Keeper
	byWorkspace                    bool
	usd, seconds, tokens, unstored *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m meter) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{m.usd, m.seconds, m.tokens, m.unstored} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (m meter) Collect(out chan<- prometheus.Metric) {
	charges, unstored, leads := m.keeper.month()
	if !leads {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.unstored, unstored.Seconds())
	sums := map[cost.Name]*cost.Cells{}
	for i := range charges {
		name := cost.Name{Namespace: charges[i].Namespace}
		if m.byWorkspace {
			name.Workspace = charges[i].Workspace
		}
		if sums[name] == nil {
			sums[name] = &cost.Cells{}
		}
		sums[name].Add(&charges[i].Cells)
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

// month returns the charges of this month, and how long the oldest change is not stored. A Keeper that has not looked yet
// does not lead.
func (k *Keeper) month() (charges []cost.Charge, unstored time.Duration, leads bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.looked.IsZero() {
		return nil, 0, false
	}
	now := k.Clock.Now()
	for _, s := range k.shards {
		if s == nil || s.failure != nil {
			continue
		}
		charges = append(charges, s.ledger.Month(now)...)
		if !s.changed.IsZero() {
			unstored = max(unstored, now.Sub(s.changed))
		}
	}
	return charges, unstored, true
}
