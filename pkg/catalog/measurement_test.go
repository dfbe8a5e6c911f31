// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/presets"
)

// someRun returns a run of a preset's model, with 4 requests in flight and 1.28 s for each.
func someRun() catalog.Measurement {
	return catalog.Measurement{
		Name: "mine", Engine: "vllm", Version: "0.31.0", Model: "meta-llama/Llama-3.1-8B-Instruct", Quantization: "bf16",
		GPU: "A10", TensorParallel: 1, InputTokens: 1024, OutputTokens: 100, Concurrency: 4,
		TTFTMillis: 290, TPOTMillis: 10, OutputTokensPerSecond: 312.5,
	}
}

// The required fields of a run.
func TestMeasurementsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*catalog.Measurement)
		want   string
	}{
		{"it is complete", func(*catalog.Measurement) {}, ""},
		{"no name", func(m *catalog.Measurement) { m.Name = "" }, "name:"},
		{"an unknown engine", func(m *catalog.Measurement) { m.Engine = "vlm" }, `engine: "vlm" is not the name of an engine`},
		{"no release", func(m *catalog.Measurement) { m.Version = "nightly" }, "version:"},
		{"no repository", func(m *catalog.Measurement) { m.Model = "llama" }, "model:"},
		{"a revision with a blank", func(m *catalog.Measurement) { m.Revision = "a b" }, "revision:"},
		{"an unknown format", func(m *catalog.Measurement) { m.Quantization = "bf61" }, "quantization:"},
		{"an unknown GPU", func(m *catalog.Measurement) { m.GPU = "A11" }, `gpu: "A11" is not the name of a GPU`},
		{"an alias of a GPU", func(m *catalog.Measurement) { m.GPU = "A100" }, `gpu: "A100" is not the name of a GPU`},
		{"no GPUs", func(m *catalog.Measurement) { m.TensorParallel = 0 }, "tensorParallel:"},
		{"negative stages", func(m *catalog.Measurement) { m.PipelineParallel = -1 }, "pipelineParallel:"},
		{"no prompt", func(m *catalog.Measurement) { m.InputTokens = 0 }, "inputTokens:"},
		{"one token has no time between tokens", func(m *catalog.Measurement) { m.OutputTokens = 1 }, "outputTokens:"},
		{"no client", func(m *catalog.Measurement) { m.Concurrency = 0 }, "concurrency:"},
		{"no first token", func(m *catalog.Measurement) { m.TTFTMillis = 0 }, "ttftMs:"},
		{"no tokens", func(m *catalog.Measurement) { m.TPOTMillis = -1 }, "tpotMs:"},
		{"no rate", func(m *catalog.Measurement) { m.OutputTokensPerSecond = 0 }, "outputTokensPerSecond:"},
		{"twice the rate of its times", func(m *catalog.Measurement) { m.OutputTokensPerSecond *= 2 }, "contradicts ttftMs and tpotMs"},
		{"half the rate of its times", func(m *catalog.Measurement) { m.OutputTokensPerSecond /= 2 }, "contradicts ttftMs and tpotMs"},
		{"no date", func(m *catalog.Measurement) { m.Date = "yesterday" }, "date:"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			run := someRun()
			tc.change(&run)
			_, err := loadPresets(t).WithMeasurements([]catalog.Measurement{run})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// A run applies to its repository and to models with the same architecture and size, but only in its format.
// WithMeasurements does not change the original catalogue.
func TestMeasurementsOfAModel(t *testing.T) {
	before := loadPresets(t)
	run := someRun()
	private := run
	private.Name, private.Model = "private", "my-team/Secret-8B"
	after, err := before.WithMeasurements([]catalog.Measurement{run, private})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, model string
		want          []string
	}{
		{"the model", "llama-3.1-8b-instruct", []string{"mine"}},
		{"a fine-tune of the same shape", "deepseek-r1-distill-llama-8b", []string{"mine"}},
		{"another size", "llama-3.1-70b-instruct", nil},
		{"another architecture of the size", "qwen3-8b", nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			of := func(c *catalog.Catalog, quantization string) (found []string) {
				m, err := c.ResolveModel(tc.model)
				if err != nil {
					t.Fatal(err)
				}
				a := m.Artifacts[0]
				a.Quantization = quantization
				for _, run := range c.Measurements(&m, &a) {
					if run.GPU == "A10" {
						found = append(found, run.Name)
					}
				}
				return found
			}
			if diff := cmp.Diff(tc.want, of(after, "bf16")); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
			if got := append(of(before, "bf16"), of(after, "fp8")...); len(got) > 0 {
				t.Errorf("runs before, or in another format: %v", got)
			}
		})
	}
	m, err := after.ResolveModel("llama-3.1-8b-instruct")
	if err != nil {
		t.Fatal(err)
	}
	m.HubID, m.Artifacts[0].Repo, m.Shape.Layers = "my-team/Secret-8B", "my-team/secret-8b", 31
	if got := after.Measurements(&m, &m.Artifacts[0]); len(got) != 1 || got[0].Name != "private" {
		t.Errorf("runs of a private repository: %v", got)
	}
}

// An ordinary overlay must have no runs, because nobody signs them.
func TestOverlaysHaveNoMeasurements(t *testing.T) {
	_, err := catalog.Load(presets.FS(), overlay("measurements: []\nengines: []"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = catalog.Load(presets.FS(), overlay("measurements: [{name: a}]"))
	for _, remedy := range []string{"signed calibration file", "--calibration", "calibration.configMap"} {
		if err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("error %v lacks %q", err, remedy)
		}
	}
}
