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
	month := m.keeper.month.Load()
	if month == nil {
		return
	}
	charges, unstored := month.seen(m.keeper.Clock.Now())
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.unstored, unstored.Seconds())
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

// month is a snapshot of the books. It is not changed after it was taken.
type month struct {
	// at is when it was taken.
	at      time.Time
	charges []cost.Charge
	// changed is the oldest change that is not stored; zero if there is none.
	changed time.Time
}

// snapshot takes the charges of this month for the metrics. A scrape must not wait for a pass, which holds the lock while
// it writes to the API server.
func (k *Keeper) snapshot() {
	if k.looked.IsZero() { // a Keeper that has not looked yet does not lead
		return
	}
	out := &month{at: k.Clock.Now(), changed: k.unstored()}
	for _, s := range k.shards {
		if s != nil && s.failure == nil {
			out.charges = append(out.charges, s.ledger.Month(out.at)...)
		}
	}
	k.month.Store(out)
}

// stored brings the snapshot up to date after a write.
func (k *Keeper) stored() {
	out := *k.month.Load()
	out.changed = k.unstored()
	k.month.Store(&out)
}

// unstored is the time of the oldest change that is not stored; zero if there is none.
func (k *Keeper) unstored() time.Time {
	var oldest time.Time
	for _, s := range k.shards {
		if s != nil && !s.changed.IsZero() && (oldest.IsZero() || s.changed.Before(oldest)) {
			oldest = s.changed
		}
	}
	return oldest
}

// seen returns what the snapshot shows now. Without machines nobody looks, so a month ends without a new snapshot.
func (m *month) seen(now time.Time) (charges []cost.Charge, unstored time.Duration) {
	if !m.changed.IsZero() {
		unstored = max(now.Sub(m.changed), 0)
	}
	if taken, now := m.at.UTC(), now.UTC(); taken.Year() != now.Year() || taken.Month() != now.Month() {
		return nil, unstored
	}
	return m.charges, unstored
}
