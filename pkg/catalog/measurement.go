// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// Measurement is one run of an engine under one load. Clients kept Concurrency requests open. Figures are means.
type Measurement struct {
	// Name of the run, unique in the catalogue.
	Name string `json:"name"`
	// Engine with its release.
	Engine  string `json:"engine"`
	Version string `json:"version"`
	// Model is the repository of the weights, Revision its commit, and Quantization the format of the weights.
	Model        string `json:"model"`
	Revision     string `json:"revision,omitempty"`
	Quantization string `json:"quantization"`
	// KVType is the type of the KV cache; empty means the model's own.
	KVType string `json:"kvType,omitempty"`
	// GPU is the name in the catalogue. All GPUs are in one machine.
	GPU              string `json:"gpu"`
	TensorParallel   int    `json:"tensorParallel"`
	PipelineParallel int    `json:"pipelineParallel,omitempty"`
	// WholeExperts is set if each expert was on one GPU (expert parallelism).
	WholeExperts bool `json:"wholeExperts,omitempty"`
	// InputTokens and OutputTokens of each request.
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
	Concurrency  int `json:"concurrency"`
	// TTFTMillis is the time to first token, and TPOTMillis the time per output token after it.
	TTFTMillis            float64 `json:"ttftMs"`
	TPOTMillis            float64 `json:"tpotMs"`
	OutputTokensPerSecond float64 `json:"outputTokensPerSecond"`
	// Memory is the memory at the engine's start; zero if unrecorded.
	Memory MeasuredMemory `json:"memory,omitzero"`
	// Source of the figures, and their Date.
	Source string `json:"source,omitempty"`
	Date   string `json:"date,omitempty"`
}

// MeasuredMemory is the KV cache of an engine after a start with known settings.
type MeasuredMemory struct {
	// KVCacheGiB is the KV cache of one GPU, from the engine's log.
	KVCacheGiB float64 `json:"kvCacheGiB"`
	// MaxModelLen, MaxNumSeqs, MaxBatchedTokens and Utilization are the engine's settings at the start.
	MaxModelLen      int     `json:"maxModelLen"`
	MaxNumSeqs       int     `json:"maxNumSeqs"`
	MaxBatchedTokens int     `json:"maxBatchedTokens"`
	Utilization      float64 `json:"utilization"`
}

// Stages returns the number of pipeline stages, at least 1.
func (m *Measurement) Stages() int { return max(m.PipelineParallel, 1) }

// Bounds of a run. No engine is as fast or as slow.
const (
	mostMillis          = 1e7
	mostTokensPerSecond = 1e7
	mostTokens          = 1 << 24
	mostRequests        = 1 << 16
	mostParallel        = 1 << 10
)

// Validate checks one run without the rest of the catalogue.
func (m Measurement) Validate() error {
	var c check
	c.text("name", m.Name, isName, "must be a name such as run-12")
	c.text("engine", m.Engine, isLowerName, "must be the name of an engine")
	c.text("version", m.Version, isReleaseNumber, `must be a release such as "0.19.0", in quotes`)
	c.text("model", m.Model, isRepo, "must be a repository such as org/Model")
	if m.Revision != "" {
		c.text("revision", m.Revision, isRevision, "must be a commit of the model's repository")
	}
	c.text("quantization", m.Quantization, isLowerName, "must be the name of a quantization")
	if m.KVType != "" {
		c.text("kvType", m.KVType, isLowerName, "must be a type of KV cache such as fp8")
	}
	c.text("gpu", m.GPU, isName, "must be the name of a GPU such as H100-80-SXM")
	for _, n := range []struct {
		field       string
		value       int
		least, most float64
	}{
		{"tensorParallel", m.TensorParallel, 1, mostParallel},
		{"pipelineParallel", m.PipelineParallel, 0, mostParallel},
		{"inputTokens", m.InputTokens, 1, mostTokens},
		{"outputTokens", m.OutputTokens, 2, mostTokens},
		{"concurrency", m.Concurrency, 1, mostRequests},
	} {
		c.within(n.field, float64(n.value), n.least, n.most)
	}
	c.positive("ttftMs", m.TTFTMillis, mostMillis)
	c.positive("tpotMs", m.TPOTMillis, mostMillis)
	c.positive("outputTokensPerSecond", m.OutputTokensPerSecond, mostTokensPerSecond)
	if m.Date != "" {
		c.text("date", m.Date, isDate, "must be a date such as 2026-01-31, in quotes")
	}
	c.littlesLaw(&m)
	c.start(m.Memory)
	return c.err
}

// start checks the memory at a start.
func (c *check) start(m MeasuredMemory) {
	if m == (MeasuredMemory{}) {
		return
	}
	c.positive("memory.kvCacheGiB", m.KVCacheGiB, mostMemoryGiB)
	c.within("memory.maxModelLen", float64(m.MaxModelLen), 1, mostTokens)
	c.within("memory.maxNumSeqs", float64(m.MaxNumSeqs), 1, mostRequests)
	c.within("memory.maxBatchedTokens", float64(m.MaxBatchedTokens), 1, mostTokens)
	c.positive("memory.utilization", m.Utilization, 1)
}

// Bounds of the requests in flight by Little's law, as a part of Concurrency. Clients keep Concurrency requests in
// flight, except at the start and at the end, and figures are rounded.
const (
	leastInFlight = 0.7
	mostInFlight  = 1.15
)

// littlesLaw refuses figures that contradict each other.
func (c *check) littlesLaw(m *Measurement) {
	if c.err != nil {
		return
	}
	each := m.TTFTMillis + float64(m.OutputTokens-1)*m.TPOTMillis
	open := m.OutputTokensPerSecond / float64(m.OutputTokens) * each / 1e3
	if part := open / float64(m.Concurrency); part < leastInFlight || part > mostInFlight {
		c.fail("outputTokensPerSecond", m.OutputTokensPerSecond,
			fmt.Sprintf("contradicts ttftMs and tpotMs, which imply %.1f requests in flight, not %d", open, m.Concurrency))
	}
}

// measured is a run with the shape of its model. The shape is zero for models outside the catalogue.
type measured struct {
	Measurement
	shape model.Shape
}

// indexMeasurements resolves the names in runs.
func (m *merger) indexMeasurements(c *Catalog) error {
	for _, o := range m.measurements.sorted() {
		if err := c.addMeasurement(o.entry); err != nil {
			return fmt.Errorf("catalogue file %q: measurement %q: %w", o.file, o.entry.Name, err)
		}
	}
	return nil
}

// addMeasurement checks the names in a run and appends it.
func (c *Catalog) addMeasurement(m Measurement) error {
	if _, known := c.engines[m.Engine]; !known {
		return fmt.Errorf("engine: %q is not the name of an engine%s", m.Engine, suggestion(closest(m.Engine, sortedKeys(c.engines))))
	}
	if gpu, known := c.gpus[gpuKey(m.GPU)]; !known || gpu.Name != m.GPU {
		return fmt.Errorf("gpu: %q is not the name of a GPU%s", m.GPU, suggestion(closest(m.GPU, c.gpuNames())))
	}
	if err := c.knownQuantization(m.Quantization); err != nil {
		return fmt.Errorf("quantization: %w", err)
	}
	run := measured{Measurement: m}
	if known, ok := c.Model(m.Model); ok {
		run.shape = speedShape(known.Shape)
	}
	c.measurements = append(c.measurements, run)
	return nil
}

// WithMeasurements returns a catalogue with further runs. They replace runs of the same name.
func (c *Catalog) WithMeasurements(runs []Measurement) (*Catalog, error) {
	out := *c
	out.measurements = slices.DeleteFunc(slices.Clone(c.measurements), func(old measured) bool {
		return slices.ContainsFunc(runs, func(m Measurement) bool { return strings.EqualFold(m.Name, old.Name) })
	})
	for i, m := range runs {
		err := m.Validate()
		if err == nil {
			err = out.addMeasurement(m)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entryName("measurements", i, m.Name), err)
		}
	}
	return &out, nil
}

// Measurements returns the runs with an artifact's format and engine. Their weights are from the artifact's repository,
// or from a model with the same architecture and size.
func (c *Catalog) Measurements(m *model.Model, a *model.Artifact) []Measurement {
	shape := speedShape(m.Shape)
	var out []Measurement
	for i := range c.measurements {
		run := &c.measurements[i]
		if run.Engine != strings.ToLower(a.Engine) || run.Quantization != a.Quantization {
			continue
		}
		named := strings.EqualFold(run.Model, a.Repo) || strings.EqualFold(run.Model, m.HubID)
		if named || !run.shape.IsZero() && reflect.DeepEqual(run.shape, shape) {
			out = append(out, run.Measurement)
		}
	}
	return out
}

// speedShape returns the part of a shape that decides the speed of text. It omits image encoders.
func speedShape(s model.Shape) model.Shape {
	s.ExtraParams, s.Vision = 0, nil
	return s
}
