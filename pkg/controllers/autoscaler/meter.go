// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// Metrics are the metrics of autoscaled sets, and of the reads of their engines.
type Metrics struct {
	replicas, demand *prometheus.Desc
	changes, scrapes *prometheus.CounterVec
	failures         prometheus.Counter
	mu               sync.Mutex
	bySet            map[types.NamespacedName]figures
}

// figures are the values of a set at its last look.
type figures struct {
	desired, ready, silent int
	// demand is the demand in replicas; negative if it is unknown.
	demand float64
}

// NewMetrics registers the metrics. A second call replaces the metrics of the first.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		replicas: prometheus.NewDesc("modelberth_autoscaler_replicas",
			"Replicas of autoscaled InferenceSets, by state: desired, ready, or silent (ready, but without signals).",
			[]string{"namespace", "inferenceset", "state"}, nil),
		demand: prometheus.NewDesc("modelberth_autoscaler_demand_replicas",
			"Demand of autoscaled InferenceSets in replicas, computed from their engines' signals. Absent while unknown.",
			[]string{"namespace", "inferenceset"}, nil),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelberth_autoscaler_changes_total",
			Help: "Changes to the number of replicas, by the reason of the decision.",
		}, []string{"reason"}),
		scrapes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelberth_autoscaler_scrapes_total",
			Help: "Reads of engines' signals, by outcome.",
		}, []string{"outcome"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modelberth_autoscaler_errors_total",
			Help: "Failed writes of the number of replicas. The controller decides again.",
		}),
		bySet: map[types.NamespacedName]figures{},
	}
	for _, outcome := range []string{outcomeRead, outcomeMissing} {
		m.scrapes.WithLabelValues(outcome)
	}
	m.changes.WithLabelValues(string(autoscale.DemandRose))
	m.changes.WithLabelValues(string(autoscale.DemandFell))
	for _, collector := range []prometheus.Collector{m, m.changes, m.scrapes, m.failures} {
		err := registry.Register(collector)
		if former, again := errors.AsType[prometheus.AlreadyRegisteredError](err); again {
			registry.Unregister(former.ExistingCollector)
			err = registry.Register(collector)
		}
		if err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

// Outcomes of a scrape.
const (
	outcomeRead    = "read"
	outcomeMissing = "missing"
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.replicas
	out <- m.demand
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for set, f := range m.bySet {
		for state, value := range map[string]int{"desired": f.desired, "ready": f.ready, "silent": f.silent} {
			out <- prometheus.MustNewConstMetric(m.replicas, prometheus.GaugeValue, float64(value), set.Namespace, set.Name, state)
		}
		if f.demand >= 0 && !math.IsInf(f.demand, 0) {
			out <- prometheus.MustNewConstMetric(m.demand, prometheus.GaugeValue, f.demand, set.Namespace, set.Name)
		}
	}
}

func (m *Metrics) observe(set types.NamespacedName, f figures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bySet[set] = f
}

func (m *Metrics) forget(set types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.bySet, set)
}

func (m *Metrics) changed(reason autoscale.Reason) { m.changes.WithLabelValues(string(reason)).Inc() }

func (m *Metrics) failed() { m.failures.Inc() }

func (m *Metrics) scraped(ok bool) {
	outcome := outcomeMissing
	if ok {
		outcome = outcomeRead
	}
	m.scrapes.WithLabelValues(outcome).Inc()
}
