// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics show whether the ConfigMap is refused.
type Metrics struct{ refused prometheus.Gauge }

// NewMetrics registers the metrics. A second call replaces the metrics of the first.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{refused: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "modelberth_settings_refused",
		Help: "Whether the controller refuses the settings in the ConfigMap and keeps its previous ones.",
	})}
	registry.Unregister(m.refused) // any earlier metric with the same description
	if err := registry.Register(m.refused); err != nil {
		return nil, fmt.Errorf("registering the metric of the settings: %w", err)
	}
	return m, nil
}

func (m *Metrics) set(isRefused bool) {
	value := 0.0
	if isRefused {
		value = 1
	}
	m.refused.Set(value)
}
