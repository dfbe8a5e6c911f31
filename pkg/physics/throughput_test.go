// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"bytes"
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// run is one row of throughput.csv: a benchmark of an engine under a steady load.
type run struct {
	id, split, model, gpu, precision, engine, version, note string
	tp, input, output, concurrency                          int
	tokens, ttft, tpot                                      float64
	// wholeExperts says that experts were spread whole.
	wholeExperts bool
}

// waits says that sequences waited for room: no row without a queue takes so long to the first token.
func (r *run) waits() bool { return r.ttft > longestPrompt }

// longestPrompt in milliseconds. The next smaller TTFT is 3,445.
const longestPrompt = 5000

// untuned says that whoever collected the row doubts its setup: a token takes 51 to 59 ms on two H200, at 4
// requests as at 20, where the same source has 15 to 18 ms for the same model on the same GPUs under SGLang.
func (r *run) untuned() bool { return strings.Contains(r.note, "eager/untuned") }

func readRuns(t testing.TB) []run {
	t.Helper()
	data, err := os.ReadFile("testdata/throughput.csv")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	columns := map[string]int{}
	for i, name := range lines[0] {
		columns[name] = i
	}
	var runs []run
	for _, line := range lines[1:] {
		text := func(column string) string {
			i, known := columns[column]
			if !known {
				t.Fatalf("there is no column %q", column)
			}
			return line[i]
		}
		number := func(column string) float64 {
			n, err := strconv.ParseFloat(text(column), 64)
			if err != nil {
				t.Fatalf("row %s: %v", line[0], err)
			}
			return n
		}
		runs = append(runs, run{
			id: text("id"), split: text("split"), model: text("model"), gpu: text("gpu"), precision: text("precision"),
			engine: text("engine"), version: text("engine_version"), note: text("note"), tp: int(number("tp")),
			input: int(number("isl")), output: int(number("osl")), concurrency: int(number("concurrency")),
			tokens: number("out_tok_s_replica"), ttft: number("ttft_ms"), tpot: number("tpot_ms"), wholeExperts: text("ep") > "1",
		})
	}
	return runs
}

// bench is a row ready to be predicted.
type bench struct {
	run
	model      *physics.Model
	deployment physics.Deployment
	load       physics.Load
	serving    physics.Serving
	budget     physics.Budget
}

// formats of the rows' precisions.
func formatOf(r *run) string {
	switch {
	case r.precision == "fp4":
		return "nvfp4"
	case r.precision == "int4":
		return "int4-experts"
	case r.precision == "fp8" && strings.HasPrefix(r.model, "meta-llama"):
		return "fp8-channel"
	default:
		return r.precision
	}
}

func benches(t testing.TB) []*bench {
	t.Helper()
	shelf := newShelf(t)
	data, err := os.ReadFile("testdata/throughput-models.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shapes map[string]model.Shape
	if err := yaml.UnmarshalStrict(data, &shapes); err != nil {
		t.Fatal(err)
	}
	engine := shelf.vllm(t)
	models := map[string]*physics.Model{}
	var out []*bench
	for _, r := range readRuns(t) {
		gpu, known := shelf.catalog.GPU(r.gpu)
		if !known {
			t.Fatalf("row %s: there is no GPU %q", r.id, r.gpu)
		}
		key := r.model + " " + r.precision
		if models[key] == nil {
			shape, known := shapes[r.model]
			if m, err := shelf.catalog.ResolveModel(r.model); err == nil && !m.Shape.IsZero() {
				shape, known = m.Shape, true
			}
			if !known {
				t.Fatalf("row %s: there is no model %q", r.id, r.model)
			}
			models[key] = shelf.model(t, published{Quantization: formatOf(&r), Shape: shape})
		}
		out = append(out, newBench(r, models[key], &gpu, engine))
	}
	return out
}

// newBench sets a row's deployment up as its benchmark did: InferenceX draws lengths from 0.8 of the nominal
// ones, serves with a max-model-len a little above them, and on Blackwell with a KV cache of 8 bits.
func newBench(r run, m *physics.Model, gpu *sku.GPU, engine *catalog.Engine) *bench {
	b := &bench{run: r, model: m}
	b.load = physics.Load{Input: r.input, Output: r.output, Concurrency: r.concurrency}
	b.serving = physics.Serving{MaxModelLen: r.input + r.output + 200, Utilization: 0.9}
	b.serving.Version = "0.15"
	if strings.Count(r.version, ".") == 2 && r.engine == "vllm" {
		b.serving.Version = r.version
	}
	if strings.Contains(r.note, "random_range_ratio 0.8") {
		b.load.Input, b.load.Output = nominal(r.input), nominal(r.output)
		if gpu.PeakTFLOPs["fp4"] > 0 {
			b.serving.KVType = "fp8"
		}
	}
	b.deployment = physics.Deployment{
		GPU: gpu, Layout: physics.Layout{TP: r.tp, PP: 1, DP: 1, EP: r.wholeExperts, Nodes: 1, LinkedGPUs: 8}, Serving: &b.serving,
		Budget: &b.budget, Engine: engine,
	}
	b.budget = physics.Memory(m, gpu, b.deployment.Layout, &b.serving, engine)
	return b
}

// nominal lengths are on average longer than true ones.
func nominal(tokens int) int { return int(math.Round(0.9 * float64(tokens))) }

func (b *bench) pace() physics.Pace { return b.model.Speed(&b.deployment, b.load) }

// queues says whether the row is said to queue: its longest sequences have the nominal lengths.
func (b *bench) queues() bool {
	return b.model.Speed(&b.deployment, physics.Load{Input: b.input, Output: b.output, Concurrency: b.concurrency}).Queues
}
