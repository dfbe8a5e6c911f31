// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import "github.com/prometheus/client_golang/prometheus"

// Conflicts is a Prometheus collector. It reports each model name that an object claims although an older object owns
// it.
type Conflicts struct{ directory Directory }

// NewConflicts returns a collector for a directory.
func NewConflicts(directory Directory) Conflicts { return Conflicts{directory} }

var shadowed = prometheus.NewDesc("modelberth_router_shadowed_names", //nolint:gochecknoglobals // a constant
	"1 for each model name that an object claims although an older object owns the name.", []string{"model", "name", "owner"}, nil)

// Describe implements prometheus.Collector.
func (Conflicts) Describe(out chan<- *prometheus.Desc) { out <- shadowed }

// Collect implements prometheus.Collector.
func (c Conflicts) Collect(out chan<- prometheus.Metric) {
	for _, conflict := range c.directory.Models().Conflicts() {
		for _, loser := range conflict.Owners[1:] {
			out <- prometheus.MustNewConstMetric(shadowed, prometheus.GaugeValue, 1, loser, conflict.Name, conflict.Owners[0])
		}
	}
}
