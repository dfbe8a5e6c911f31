// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command metricsdocs writes the reference of the controller's metrics from their declarations. It decides the page's
// layout; names, labels and texts are those that Prometheus gets.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/controllers/cost"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter"
	"github.com/modelberth/modelberth/pkg/evidence"
)

const intro = `# Metrics

The controller serves these metrics on port 8443, over HTTPS and [to clients with the right to get them](../hardening.md#metrics). [Monitoring](../monitoring.md) has monitors, alerts and dashboards for them. Only those of the [cost ledger](../cost.md) have labels with the names of namespaces and, if the administrator wants it, of Workspaces. This page is made by ` + "`make generate`" + `.

| metric | type | labels | meaning |
|---|---|---|---|
`

const outro = `
controller-runtime adds its own. These are used by the alerts and dashboards: ` + "`controller_runtime_reconcile_time_seconds`, " +
	"`controller_runtime_reconcile_total`, `workqueue_depth`, `rest_client_requests_total`, `leader_election_master_status`, " +
	"`process_resident_memory_bytes` and `process_cpu_seconds_total`" + `.
`

// pattern reads a description: the library shows its fields only in this text.
var pattern = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

// page is a registry that writes down what is registered.
type page map[string]string

// Register implements prometheus.Registerer.
func (p page) Register(collector prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 64)
	collector.Describe(descs)
	close(descs)
	for desc := range descs {
		match := pattern.FindStringSubmatch(desc.String())
		if match == nil {
			return fmt.Errorf("description %s is not of the expected form", desc)
		}
		labels := regexp.MustCompile(`\w+`).ReplaceAllString(match[3], "`$0`")
		labels = regexp.MustCompile(`,`).ReplaceAllString(labels, ", ")
		p[match[1]] = fmt.Sprintf("| %#q | %s | %s | %s |\n", match[1], kindOf(collector), labels, match[2])
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (p page) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		if err := p.Register(collector); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (page) Unregister(prometheus.Collector) bool { return false }

// kindOf returns the type of a collector's metrics. The project's own collectors have gauges only.
func kindOf(collector prometheus.Collector) string {
	switch collector.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Gauge:
		return "gauge"
	case prometheus.Counter:
		return "counter"
	default:
		return "gauge"
	}
}

func main() {
	out := flag.String("out", "docs/reference/metrics.md", "the page to write")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdocs:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	rows := page{}
	if _, err := meter.New(rows, &cooldown.Memory{}, clock.RealClock{}); err != nil {
		return err
	}
	if err := meter.RegisterSpending(rows, nil, nil, nil); err != nil {
		return err
	}
	if err := meter.RegisterPopulation(rows, nil, nil); err != nil {
		return err
	}
	if _, err := evidence.NewMetrics(rows); err != nil {
		return err
	}
	if err := cost.Register(rows, nil, false); err != nil {
		return err
	}
	var text bytes.Buffer
	text.WriteString(intro)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		text.WriteString(rows[name])
	}
	text.WriteString(outro)
	return os.WriteFile(path, text.Bytes(), 0o644)
}
