// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count the calibration files.
type Metrics struct{ files *prometheus.GaugeVec }

// NewMetrics registers the metrics. A second call replaces the metrics of the first.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{files: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "modelberth_calibration_files",
		Help: "Calibration files, by whether plans use them or the controller refused them.",
	}, []string{"state"})}
	m.set(0, 0)
	registry.Unregister(m.files) // any earlier metric with the same description
	if err := registry.Register(m.files); err != nil {
		return nil, fmt.Errorf("registering the metrics of calibration files: %w", err)
	}
	return m, nil
}

func (m *Metrics) set(used, refused int) {
	m.files.WithLabelValues("used").Set(float64(used))
	m.files.WithLabelValues("refused").Set(float64(refused))
}
