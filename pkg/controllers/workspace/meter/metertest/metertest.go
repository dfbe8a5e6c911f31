// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metertest reads metrics in tests.
package metertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Lines returns the metrics of a registry that begin with one of the prefixes, one per line.
func Lines(t *testing.T, registry *prometheus.Registry, prefixes ...string) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, family := range families {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(family.GetName(), prefix) }) {
			continue
		}
		for _, metric := range family.GetMetric() {
			line := []string{family.GetName()}
			for _, label := range metric.GetLabel() {
				line = append(line, label.GetValue())
			}
			switch {
			case metric.Counter != nil:
				line = append(line, fmt.Sprintf("%g", metric.GetCounter().GetValue()))
			case metric.Gauge != nil:
				line = append(line, fmt.Sprintf("%g", metric.GetGauge().GetValue()))
			case metric.Histogram != nil:
				line = append(line, fmt.Sprintf("%d %gs", metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum()))
			}
			out = append(out, strings.Join(line, " "))
		}
	}
	return out
}
