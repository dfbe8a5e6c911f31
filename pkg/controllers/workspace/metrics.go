// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
)

// outcomeReady is the outcome of complete attempts; the others are an attempt's reasons.
const outcomeReady = "Ready"

// Metrics count the outcomes of attempts.
type Metrics struct {
	attempts *prometheus.CounterVec
	seconds  prometheus.Histogram
	wasted   prometheus.Counter
}

// NewMetrics registers the metrics. A second set takes the place of the first.
func NewMetrics(registry prometheus.Registerer, memory *cooldown.Memory, now clock.PassiveClock) (*Metrics, error) {
	m := &Metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelberth_capacity_attempts_total",
			Help: "Attempts to get machines, by machine type and what became of them.",
		}, []string{"instance_type", "outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "modelberth_capacity_seconds",
			Help:    "Seconds from asking for machines to having them usable.",
			Buckets: prometheus.ExponentialBuckets(15, 2, 8), // 15 s to 32 min
		}),
	}
	m.wasted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "modelberth_spending_wasted_usd_total",
		Help: "What machines cost in USD that were launched and given up before they were of use.",
	})
	active := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modelberth_capacity_cooldowns_active",
		Help: "Offers of the cloud that are left alone after refusals.",
	}, func() float64 { return float64(memory.Active(now.Now())) })
	for _, collector := range []prometheus.Collector{m.attempts, m.seconds, m.wasted, active} {
		if err := replace(registry, collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// replace registers a collector in the place of its like.
func replace(registry prometheus.Registerer, collector prometheus.Collector) error {
	err := registry.Register(collector)
	if former, again := errors.AsType[prometheus.AlreadyRegisteredError](err); again {
		registry.Unregister(former.ExistingCollector)
		err = registry.Register(collector)
	}
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// count counts the outcomes between two statuses.
func (m *Metrics) count(before, after []v1beta1.Attempt) {
	if m == nil {
		return
	}
	for i := range after {
		a, was := &after[i], v1beta1.Attempt{}
		if at := slices.IndexFunc(before, func(b v1beta1.Attempt) bool { return b.Number == a.Number }); at >= 0 {
			was = before[at]
		}
		if a.ReadyTime != nil && was.ReadyTime == nil {
			m.attempts.WithLabelValues(a.InstanceType, outcomeReady).Inc()
			m.seconds.Observe(float64(a.ReadyTime.Sub(a.StartTime.Time)) / float64(time.Second))
		}
		if a.Reason != "" && was.Reason == "" {
			m.attempts.WithLabelValues(a.InstanceType, a.Reason).Inc()
		}
	}
}
