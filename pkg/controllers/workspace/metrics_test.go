// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// gathered are the metrics of a registry, one line each.
func gathered(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			line := family.GetName()
			for _, label := range metric.GetLabel() {
				line += " " + label.GetValue()
			}
			switch {
			case metric.Counter != nil:
				line += fmt.Sprintf(" %g", metric.GetCounter().GetValue())
			case metric.Gauge != nil:
				line += fmt.Sprintf(" %g", metric.GetGauge().GetValue())
			case metric.Histogram != nil:
				line += fmt.Sprintf(" %d %gs", metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum())
			}
			out = append(out, line)
		}
	}
	return out
}

// TestMetrics counts each turn of an attempt once, also with a second set in the place of the first.
func TestMetrics(t *testing.T) {
	registry, memory := prometheus.NewRegistry(), &cooldown.Memory{}
	clock := testclock.NewFakePassiveClock(now.Time)
	var m *Metrics
	for range 2 {
		var err error
		if m, err = NewMetrics(registry, memory, clock); err != nil {
			t.Fatal(err)
		}
	}
	memory.Learn(now.Time, refusal.Attempt{
		Offering: refusal.Offering{InstanceType: "A"}, Started: now.Time, Ended: now.Time, Cause: refusal.Quota,
		Scope: refusal.Scope{Breadth: refusal.SKU, Name: "A", Zone: refusal.Any}, Cooldown: time.Hour,
	})
	ready := metav1.NewTime(now.Add(90 * time.Second))
	asked := v1beta1.Attempt{Number: 2, InstanceType: "B", StartTime: now}
	got := asked
	got.ReadyTime = &ready
	lost := got
	lost.Reason = v1beta1.ReasonLost
	refusedFirst := v1beta1.Attempt{Number: 1, InstanceType: "A", StartTime: now, Reason: v1beta1.ReasonQuota}
	steps := [][]v1beta1.Attempt{
		nil,
		{{Number: 1, InstanceType: "A", StartTime: now}},
		{refusedFirst, asked},
		{refusedFirst, got},
		{refusedFirst, got},
		{refusedFirst, lost},
		{refusedFirst, lost},
	}
	for i := 1; i < len(steps); i++ {
		m.count(steps[i-1], steps[i])
	}
	want := []string{
		"modelberth_capacity_attempts_total A Quota 1",
		"modelberth_capacity_attempts_total B Lost 1",
		"modelberth_capacity_attempts_total B Ready 1",
		"modelberth_capacity_cooldowns_active 1",
		"modelberth_capacity_seconds 1 90s",
		"modelberth_spending_wasted_usd_total 0",
	}
	if diff := cmp.Diff(want, gathered(t, registry)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
