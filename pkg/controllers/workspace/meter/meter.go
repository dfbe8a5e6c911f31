// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package meter declares the metrics of Workspaces: attempts to acquire machines, starts, plans, failed passes, states,
// and the cost of machines.
//
// It counts the decisions and writes of other packages. It must not decide or write anything.
package meter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
)

// outcomeReady is the outcome of an attempt that got its machines. Any other outcome is the reason of the attempt.
const outcomeReady = "Ready"

// Metrics count the outcomes of attempts, starts, plans and passes.
type Metrics struct {
	attempts *prometheus.CounterVec
	seconds  prometheus.Histogram
	wasted   prometheus.Counter
	stages   *prometheus.HistogramVec
	starts   prometheus.Histogram
	planning prometheus.Histogram
	errors   *prometheus.CounterVec
}

// New registers the metrics. A second call replaces the metrics of the first.
func New(registry prometheus.Registerer, memory *cooldown.Memory, now clock.PassiveClock) (*Metrics, error) {
	m := &Metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modelberth_capacity_attempts_total",
			Help: "Attempts to acquire machines, by machine type and outcome.",
		}, []string{"instance_type", "outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "modelberth_capacity_seconds",
			Help:    "Seconds from the request for machines until all are usable.",
			Buckets: prometheus.ExponentialBuckets(15, 2, 8), // 15 s to 32 min
		}),
		wasted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modelberth_spending_wasted_usd_total",
			Help: "Cost in USD of machines released before they were usable, or before any pod was ready on them.",
		}),
	}
	m.timings()
	m.errors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modelberth_reconcile_errors_total",
		Help: "Failed reconciliations of Workspaces, by cause. Waiting does not count as a failure.",
	}, []string{"cause"})
	for _, cause := range causes() {
		m.errors.WithLabelValues(cause)
	}
	active := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modelberth_capacity_cooldowns_active",
		Help: "Refused offers (machine type, zone and capacity type) that are cooling down.",
	}, func() float64 { return float64(memory.Active(now.Now())) })
	for _, collector := range []prometheus.Collector{
		m.attempts, m.seconds, m.wasted, active, m.stages, m.starts, m.planning, m.errors,
	} {
		if err := replace(registry, collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// timings makes the histograms of starts and plans.
func (m *Metrics) timings() {
	m.stages = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "modelberth_startup_stage_seconds",
		Help:    "Seconds that each stage of a Workspace's start took, as in its status.startup.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 13), // 1 s to 68 min
	}, []string{"stage"})
	for _, stage := range []string{
		v1beta1.StagePlanned, v1beta1.StageMachine, v1beta1.StageWeights, v1beta1.StageImage, v1beta1.StageEngine, v1beta1.StageReady,
	} {
		m.stages.WithLabelValues(stage)
	}
	m.starts = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "modelberth_startup_seconds",
		Help:    "Seconds from the start of a Workspace to its first answer.",
		Buckets: []float64{30, 60, 120, 300, 600, 900, 1200, 1800, 2700, 3600}, // the goal, 20 min, is one of them
	})
	m.planning = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "modelberth_planning_seconds",
		Help:    "Seconds to compute one plan.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8), // 0.5 ms to 8 s
	})
}

// replace registers a collector in place of an equal one.
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

// Count counts the outcomes that attempts reached between two statuses.
func (m *Metrics) Count(before, after []v1beta1.Attempt) {
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

// Started records the duration of each startup stage that ended between two statuses.
func (m *Metrics) Started(before, after []v1beta1.StartupStage) {
	if m == nil {
		return
	}
	for i := range after {
		stage := &after[i]
		hadEnded := slices.ContainsFunc(before, func(b v1beta1.StartupStage) bool {
			return b.Stage == stage.Stage && b.StartTime.Equal(&stage.StartTime) && b.EndTime != nil
		})
		if stage.EndTime == nil || hadEnded {
			continue
		}
		m.stages.WithLabelValues(stage.Stage).Observe(stage.EndTime.Sub(stage.StartTime.Time).Seconds())
		if stage.Stage == v1beta1.StageReady {
			m.starts.Observe(stage.EndTime.Sub(after[0].StartTime.Time).Seconds())
		}
	}
}

// Planner measures how long plans take.
type Planner struct {
	planning.Planner
	Clock   clock.PassiveClock
	Metrics *Metrics
}

// Plan implements planning.Planner.
func (p Planner) Plan(request planner.Request) (planner.Plan, error) {
	begin := p.Clock.Now()
	plan, err := p.Planner.Plan(request)
	p.Metrics.planning.Observe(p.Clock.Since(begin).Seconds())
	return plan, err
}
