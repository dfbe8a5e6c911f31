// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// update rewrites the presets' measurements: go test ./pkg/physics -run MeasurementsOfPresets -update.
var update = flag.Bool("update", false, "rewrite presets/measurements/vllm.yaml")

// measurementsFile holds the rows of throughput.csv that can support a plan.
const measurementsFile = "../../presets/measurements/vllm.yaml"

const measurementsHeader = `# Copyright The Modelberth Authors.
# SPDX-License-Identifier: Apache-2.0

# Published runs of vLLM that make the speed of a plan measured: docs/planning.md has the rule. Made from
# pkg/physics/testdata/throughput.csv by go test ./pkg/physics -run MeasurementsOfPresets -update: the rows that name a
# release and a fixed number of clients, state all three figures, and contradict neither themselves nor their source.
# Lengths are means. What InferenceX set is in pkg/physics/testdata/throughput-setups.yaml.
source: pkg/physics/testdata/throughput.csv, each row with its source
date: "2026-11-25"
measurements:
`

// supporting returns a row's run if it can support a plan. A run of an early release with asynchronous scheduling
// supports none: it is unlike a plan of that release, and resembles later releases only in this respect.
func (b *bench) supporting() (catalog.Measurement, bool) {
	version := strings.TrimPrefix(b.version, "v")
	named := version != "" && strings.Trim(version, "0123456789.") == ""
	if b.engine != "vllm" || !named || b.serving.Async || b.burst || b.doubt() != "" || b.mixed() || b.waits() || b.queues() ||
		math.IsNaN(b.tpot+b.ttft+b.tokens) {
		return catalog.Measurement{}, false
	}
	return catalog.Measurement{
		Name: b.id, Engine: "vllm", Version: version, Model: b.run.model, Quantization: formatOf(&b.run), KVType: b.serving.KVType,
		GPU: b.gpu, TensorParallel: b.tp, PipelineParallel: b.pp, WholeExperts: b.wholeExperts,
		InputTokens: b.load.Input, OutputTokens: b.load.Output, Concurrency: b.concurrency,
		TTFTMillis: b.ttft, TPOTMillis: b.tpot, OutputTokensPerSecond: b.tokens,
		Source: b.source,
	}, true
}

// line returns a run in the format of the presets.
func line(m *catalog.Measurement) string {
	var out strings.Builder
	fmt.Fprintf(&out, "- {name: %s, engine: %s, version: %q, model: %s, quantization: %s", m.Name, m.Engine, m.Version, m.Model, m.Quantization)
	if m.KVType != "" {
		fmt.Fprintf(&out, ", kvType: %s", m.KVType)
	}
	fmt.Fprintf(&out, ", gpu: %s, tensorParallel: %d", m.GPU, m.TensorParallel)
	if m.PipelineParallel > 1 {
		fmt.Fprintf(&out, ", pipelineParallel: %d", m.PipelineParallel)
	}
	if m.WholeExperts {
		out.WriteString(", wholeExperts: true")
	}
	fmt.Fprintf(&out, ",\n   inputTokens: %d, outputTokens: %d, concurrency: %d, ttftMs: %g, tpotMs: %g, outputTokensPerSecond: %g,\n   source: %q}\n",
		m.InputTokens, m.OutputTokens, m.Concurrency, m.TTFTMillis, m.TPOTMillis, m.OutputTokensPerSecond, m.Source)
	return out.String()
}

// The presets have exactly the rows that can support a plan.
func TestMeasurementsOfPresets(t *testing.T) {
	var runs []catalog.Measurement
	for _, b := range benches(t) {
		if m, ok := b.supporting(); ok {
			if err := m.Validate(); err != nil {
				t.Errorf("row %s: %v", b.id, err)
			}
			runs = append(runs, m)
		}
	}
	slices.SortFunc(runs, func(a, b catalog.Measurement) int { return cmp.Compare(a.Name, b.Name) })
	var want strings.Builder
	want.WriteString(measurementsHeader)
	for i := range runs {
		want.WriteString(line(&runs[i]))
	}
	if *update {
		if err := os.WriteFile(measurementsFile, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(measurementsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("measurements, -update rewrites them (-want +got):\n%s", diff)
	}
	t.Logf("figure: published runs that can support a plan: %d of %d rows", len(runs), len(benches(t)))
}
