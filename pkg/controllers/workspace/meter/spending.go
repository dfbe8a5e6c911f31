// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
)

// States of machines, as label values of the metric.
const (
	// spentPending machines are requested, but not launched yet.
	spentPending = "pending"
	// spentRunning machines are launched, and a model answers on them.
	spentRunning = "running"
	// spentIdle machines are launched, but no model answers on them.
	spentIdle = "idle"
)

// scrapeLimit bounds the duration of a scrape.
const scrapeLimit = 10 * time.Second

// MachineCosts returns the costs of all machines from caches.
type MachineCosts interface {
	MachineCosts(ctx context.Context) ([]capacity.MachineCost, error)
}

// RegisterSpending registers the hourly cost of all machines, read from caches at each scrape. Only the leader reports
// it, so the values of all replicas may be summed.
func RegisterSpending(registry prometheus.Registerer, reader client.Reader, costs MachineCosts, leads <-chan struct{}) error {
	return replace(registry, spending{reader: reader, costs: costs, leads: leads, rate: prometheus.NewDesc(
		"modelberth_spending_usd_per_hour",
		"Cost of machines in USD per hour: running (a model answers on them), idle (no model answers) or pending (not launched yet).",
		[]string{"state"}, nil)})
}

// spending is a stateless collector.
type spending struct {
	reader client.Reader
	costs  MachineCosts
	leads  <-chan struct{}
	rate   *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s spending) Describe(out chan<- *prometheus.Desc) { out <- s.rate }

// Collect implements prometheus.Collector.
func (s spending) Collect(out chan<- prometheus.Metric) {
	select {
	case <-s.leads:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	sums, err := s.sums(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(s.rate, err)
		return
	}
	for _, state := range []string{spentIdle, spentPending, spentRunning} {
		out <- prometheus.MustNewConstMetric(s.rate, prometheus.GaugeValue, sums[state], state)
	}
}

// sums returns the hourly cost of machines by their state, in USD.
func (s spending) sums(ctx context.Context) (map[string]float64, error) {
	costs, err := s.costs.MachineCosts(ctx)
	if err != nil {
		return nil, err
	}
	list := &v1beta1.WorkspaceList{}
	if err := s.reader.List(ctx, list); err != nil {
		return nil, err
	}
	workspaces := map[types.UID]*v1beta1.Workspace{}
	for i := range list.Items {
		workspaces[list.Items[i].UID] = &list.Items[i]
	}
	sums := map[string]float64{}
	for _, bill := range costs {
		sums[spentFor(workspaces[bill.Owner.UID], bill)] += max(bill.HourlyPrice, 0)
	}
	return sums, nil
}

// spentFor returns the state of a machine; a nil Workspace stands for a deleted one.
func spentFor(ws *v1beta1.Workspace, bill capacity.MachineCost) string {
	switch {
	case !bill.Launched:
		return spentPending
	case ws == nil || !meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionInferenceReady) ||
		!acquire.Attempts(ws.Status.Attempts).IsComplete(bill.Machine):
		return spentIdle
	default:
		return spentRunning
	}
}

// Waste counts the cost in USD of machines that never served.
func (m *Metrics) Waste(usd float64) {
	if m != nil {
		m.wasted.Add(usd)
	}
}
