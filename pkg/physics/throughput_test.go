// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// run is one row of throughput.csv: a benchmark of an engine under one load. Missing figures are NaN.
type run struct {
	id, model, gpu, precision, engine, version, flags, note, source string
	tp, pp, input, output, concurrency                              int
	tokens, ttft, tpot                                              float64
	// wholeExperts reports whether experts were spread whole.
	wholeExperts bool
	// unnamed is the release if the row names none.
	unnamed string
	// burst reports whether all requests were sent at one moment, and no others after them.
	burst bool
}

// waits reports whether sequences waited for room: without a queue, no row takes so long to the first token.
func (r *run) waits() bool { return !r.burst && r.ttft > longestPrompt }

// longestPrompt in milliseconds. The next smaller TTFT is 3,445.
const longestPrompt = 5000

// untuned marks a row with a setup that its collector doubts: a token takes 51 to 59 ms on two H200, at 4 requests as at
// 20, and 15 to 18 ms from the same source for the same model on the same GPUs under SGLang. No constant is fitted to
// it. The release explains it: its experts multiply whole blocks (catalog.FormerBlocks).
func (r *run) untuned() bool { return strings.Contains(r.note, "eager/untuned") }

// doubt is the objection to a row; empty if there is none.
func (r *run) doubt() string {
	switch share := r.inFlight() / float64(r.concurrency); {
	case strings.Contains(r.note, "do not use"):
		return "its source's collector doubts it"
	case r.untuned():
		return "its source's collector takes it for untuned"
	case r.burst && share < leastOfBurst, !r.burst && share < leastOfLoop:
		return fmt.Sprintf("by Little's law %.0f requests were in flight, not %d", r.inFlight(), r.concurrency)
	case r.burst && r.ttft > mostOfWait*r.lasted():
		return "the requests waited long before the engine began"
	default:
		return ""
	}
}

// Of a burst of equal requests served in turn, at least half are in flight on average, and the mean wait is half of the
// total time, or less; most rows say 0.50. Clients with a fixed number of open requests have that number in flight.
const leastOfBurst, mostOfWait, leastOfLoop = 0.48, 0.6, 0.8

// lasted is how long a burst took, in milliseconds.
func (r *run) lasted() float64 {
	return float64(r.concurrency*r.output) / r.tokens * 1e3
}

// inFlight is the average number of requests in flight, by Little's law; NaN if the row has none.
func (r *run) inFlight() float64 {
	return r.tokens / float64(r.output) * (r.ttft + float64(r.output)*r.tpot) / 1e3
}

// mixed reports whether the requests of a burst have very different lengths with only the mean stated: those of
// ShareGPT, whose longest answers go on long after the others.
func (r *run) mixed() bool {
	return r.burst && r.input >= 200 && r.input < 400
}

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
	setups := readSetups(t)
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
			if text(column) == "" {
				return math.NaN()
			}
			n, err := strconv.ParseFloat(text(column), 64)
			if err != nil {
				t.Fatalf("row %s: %v", line[0], err)
			}
			return n
		}
		whole := func(column string) int {
			if text(column) == "" {
				return 1
			}
			return int(number(column))
		}
		r := run{
			id: text("id"), model: text("model"), gpu: text("gpu"), precision: text("precision"), engine: text("engine"),
			version: text("engine_version"), flags: text("flags"), note: text("note"), source: text("source"),
			tp: whole("tp"), pp: whole("pp"), input: whole("isl"), output: whole("osl"),
			tokens: number("out_tok_s_replica"), ttft: number("ttft_ms"), tpot: number("tpot_ms"),
		}
		r.set(setups)
		r.wholeExperts = text("ep") > "1" || strings.Contains(r.flags, "--enable-expert-parallel")
		r.burst = strings.HasPrefix(text("concurrency"), "inf")
		open, _, _ := strings.Cut(strings.TrimLeft(text("concurrency"), "infclosed-p( ~"), " ")
		if r.concurrency, err = strconv.Atoi(open); err != nil {
			t.Fatalf("row %s: concurrency %q: %v", r.id, text("concurrency"), err)
		}
		runs = append(runs, r)
	}
	return runs
}

// setup is how InferenceX started the engine for some rows.
type setup struct {
	Model, Precision, Flags, Source string
	GPUs, Versions                  []string
	// Release of rows without one.
	Release string
	// BatchedPerInput is max-num-batched-tokens for each token of the nominal prompt.
	BatchedPerInput int
}

func readSetups(t testing.TB) (out []setup) {
	t.Helper()
	data, err := os.ReadFile("testdata/throughput-setups.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// set adds a row's setup.
func (r *run) set(setups []setup) {
	for i := range setups {
		s := &setups[i]
		of := func(version string) bool {
			return version == r.version || version != "" && strings.HasPrefix(r.version, version)
		}
		if r.lab() != "InferenceX" || r.engine != "vllm" || s.Model != r.model || !slices.Contains(s.GPUs, r.gpu) ||
			s.Precision != "" && s.Precision != r.precision || len(s.Versions) > 0 && !slices.ContainsFunc(s.Versions, of) {
			continue
		}
		r.flags = strings.TrimSpace(r.flags + " " + s.Flags)
		if s.BatchedPerInput > 0 {
			r.flags += fmt.Sprintf(" --max-num-batched-tokens %d", s.BatchedPerInput*r.input)
		}
		r.unnamed = s.Release
		return
	}
}

// bench is a row ready to be predicted.
type bench struct {
	run
	model      *physics.Model
	experts    bool
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
	case r.precision == "fp8" && strings.Contains(r.model, "Llama"):
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
	models, experts := map[string]*physics.Model{}, map[string]bool{}
	var out []*bench
	for _, r := range readRuns(t) {
		gpu, known := shelf.catalog.GPU(r.gpu)
		if !known {
			t.Fatalf("row %s: there is no GPU %q", r.id, r.gpu)
		}
		key := r.model + " " + r.precision
		if models[key] == nil {
			shape := shapeOf(t, shelf, shapes, r.model)
			models[key], experts[key] = shelf.model(t, published{Quantization: formatOf(&r), Shape: shape}), shape.MoE != nil
		}
		b := newBench(r, models[key], &gpu, engine)
		b.experts = experts[key]
		out = append(out, b)
	}
	return out
}

// shapeOf a model, taken from its publication in another format.
func shapeOf(t testing.TB, s shelf, others map[string]model.Shape, repo string) model.Shape {
	t.Helper()
	base := strings.TrimSuffix(repo, "-FP8")
	for _, name := range []string{repo, base, base + "-BF16"} {
		if m, err := s.catalog.ResolveModel(name); err == nil && !m.Shape.IsZero() {
			return m.Shape
		}
		if shape, known := others[name]; known {
			return shape
		}
	}
	t.Fatalf("there is no model %q", repo)
	return model.Shape{}
}

// newBench sets a row's deployment up as its benchmark did: InferenceX draws lengths from 0.8 of the nominal
// ones, and serves with a max-model-len a little above them.
func newBench(r run, m *physics.Model, gpu *sku.GPU, engine *catalog.Engine) *bench {
	b := &bench{run: r, model: m}
	b.load = physics.Load{Input: r.input, Output: r.output, Concurrency: r.concurrency}
	b.serving = physics.Serving{
		MaxModelLen: r.input + r.output + 200, Utilization: 0.9, Version: r.release(),
		MaxBatchedTokens: r.flag("--max-num-batched-tokens"), MaxNumSeqs: r.flag("--max-num-seqs"),
		Async: strings.Contains(r.flags, "--async-scheduling"),
	}
	if strings.Contains(r.note, "fp8 KV") || strings.Contains(r.flags, "--kv-cache-dtype fp8") {
		b.serving.KVType = "fp8"
	}
	if strings.Contains(r.note, "random_range_ratio 0.8") {
		b.load.Input, b.load.Output = nominal(r.input), nominal(r.output)
	}
	b.deployment = physics.Deployment{
		GPU: gpu, Layout: physics.Layout{TP: r.tp, PP: r.pp, DP: 1, EP: r.wholeExperts, Nodes: 1, LinkedGPUs: 8}, Serving: &b.serving,
		Budget: &b.budget, Engine: engine,
	}
	b.budget = physics.Memory(m, gpu, b.deployment.Layout, &b.serving, engine)
	// It ran, so it fitted: with room for fewer sequences than the release's default, or with more of the memory.
	for _, used := range [...]float64{0.9, 0.95} {
		if b.budget.MaxConcurrency >= 1 {
			break
		}
		b.serving.MaxNumSeqs, b.serving.Utilization = leastSequences, used
		b.budget = physics.Memory(m, gpu, b.deployment.Layout, &b.serving, engine)
	}
	return b
}

// leastSequences is the smaller of the engine's defaults.
const leastSequences = 256

// release of the engine. InferenceX's rows without one are of 2025.
func (r *run) release() string {
	switch {
	case strings.Contains(r.flags, "--performance-mode"):
		return "0.17" // which has this flag first, whatever the source's page says of all its rows
	case r.engine == "vllm" && physics.IsRelease(r.version):
		return r.version
	default:
		return cmp.Or(r.unnamed, "0.13")
	}
}

// flag is the number of a flag, else 0.
func (r *run) flag(name string) int {
	_, after, _ := strings.Cut(r.flags, name)
	n := 0
	_, _ = fmt.Sscanf(strings.TrimLeft(after, "= "), "%d", &n)
	return n
}

// nominal lengths are on average longer than true ones.
func nominal(tokens int) int { return int(math.Round(0.9 * float64(tokens))) }

func (b *bench) pace() physics.Pace { return b.model.Speed(&b.deployment, b.load) }

// queues reports whether the row is said to queue: its longest sequences have the nominal lengths.
func (b *bench) queues() bool {
	return b.model.Speed(&b.deployment, physics.Load{Input: b.input, Output: b.output, Concurrency: b.concurrency}).Queues
}
