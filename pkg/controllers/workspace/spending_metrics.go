// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// What machines are doing for their money.
const (
	// spentPending are asked for, and not launched yet.
	spentPending = "pending"
	// spentRunning are launched, and a model answers on them.
	spentRunning = "running"
	// spentIdle are launched, and none does.
	spentIdle = "idle"
)

// scrapeLimit bounds one look at the caches.
const scrapeLimit = 10 * time.Second

// RegisterSpending registers what all machines cost per hour, as caches show it when it is asked for. Who does not lead
// has none and tells nothing, so that it may be added up over replicas.
func (r *Reconciler) RegisterSpending(registry prometheus.Registerer, leads <-chan struct{}) error {
	return replace(registry, spending{reader: r.Client, machines: r.Provisioner, leads: leads, rate: prometheus.NewDesc(
		"modelberth_spending_usd_per_hour",
		"What machines cost in USD per hour: running where a model answers on them, idle where none does, or pending: not launched yet.",
		[]string{"state"}, nil)})
}

// spending is a collector without a state of its own.
type spending struct {
	reader   client.Reader
	machines interface {
		Bills(ctx context.Context) ([]capacity.Bill, error)
	}
	leads <-chan struct{}
	rate  *prometheus.Desc
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

// sums are what machines cost by what they are doing.
func (s spending) sums(ctx context.Context) (map[string]float64, error) {
	bills, err := s.machines.Bills(ctx)
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
	for _, bill := range bills {
		sums[spentFor(workspaces[bill.Owner.UID], bill)] += max(bill.HourlyPrice, 0)
	}
	return sums, nil
}

// spentFor is what a machine of a Workspace is doing; of none where that is nil.
func spentFor(ws *v1beta1.Workspace, bill capacity.Bill) string {
	switch {
	case !bill.Launched:
		return spentPending
	case ws == nil || !isTrue(ws.Status.Conditions, v1beta1.ConditionInferenceReady) || !hasCome(ws, bill.Machine):
		return spentIdle
	default:
		return spentRunning
	}
}

// hasCome says whether a machine is one of those that an attempt has got, while others may be on their way. One
// that no attempt names is taken for one that serves.
func hasCome(ws *v1beta1.Workspace, machine string) bool {
	for _, a := range slices.Backward(ws.Status.Attempts) {
		if slices.Contains(a.NodeClaims, machine) {
			return a.ReadyTime != nil && a.Reason == ""
		}
	}
	return true
}

// waste is what the machines of the open attempt cost that are launched, where they never were of use.
func (s *scope) waste(now time.Time) float64 {
	open := s.openAttempt()
	if open == nil || open.ReadyTime != nil {
		return 0
	}
	usd := 0.0
	for i := range s.machines {
		if machine := &s.machines[i]; !s.isHeld(machine.Name) && machine.Launched && now.After(machine.CreatedAt) {
			usd += max(machine.HourlyPrice, 0) * now.Sub(machine.CreatedAt).Hours()
		}
	}
	return usd
}

// waste counts what a pass gave up, once that is written down.
func (m *Metrics) waste(s *scope) {
	if m != nil {
		m.wasted.Add(s.wasted)
	}
	s.wasted = 0
}
