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
	// wholeExperts: whole experts were spread over GPUs.
	wholeExperts bool
	// unnamed is the release to assume if the row names none.
	unnamed string
	// burst: all requests were sent at once, and no others after them.
	burst bool
	// noTTFT is the reason why the time to the first token is not compared with the law; empty if it is.
	noTTFT string
}

// waits reports whether sequences waited for memory. Without a queue, no row takes so long to the first token.
func (r *run) waits() bool { return !r.burst && r.ttft > longestPrompt }

// longestPrompt is a time to first token in milliseconds. The largest one below it is 3,445.
const longestPrompt = 5000

// untuned marks rows whose collector doubts the setup. A token takes 51 to 59 ms on two H200, with 4 requests as with
// 20. The same source reports 15 to 18 ms for the same model on the same GPUs under SGLang. No constant is fitted to
// these rows. Their release explains them: its experts multiply whole blocks (catalog.FormerBlocks).
func (r *run) untuned() bool { return strings.Contains(r.note, "eager/untuned") }

// doubt returns the objection to a row; empty if there is none.
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

// If an engine serves a burst of equal requests in turn, at least half of them are in flight on average, and the mean
// wait is at most half of the total time; most rows have 0.50. Clients with a fixed number of open requests have that
// number in flight.
const leastOfBurst, mostOfWait, leastOfLoop = 0.48, 0.6, 0.8

// lasted returns the duration of a burst in milliseconds.
func (r *run) lasted() float64 {
	return float64(r.concurrency*r.output) / r.tokens * 1e3
}

// inFlight returns the average number of requests in flight, by Little's law; NaN if the row lacks a figure.
func (r *run) inFlight() float64 {
	return r.tokens / float64(r.output) * (r.ttft + float64(r.output)*r.tpot) / 1e3
}

// mixed reports whether the requests of a burst have very different lengths, and the row has only their mean. This is
// so for ShareGPT, whose longest answers continue long after the others.
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
	setups, apart := readSetups(t), readNotCompared(t)
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
		r.judgeTTFT(apart)
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

// setup has the settings with which InferenceX started the engine for some rows.
type setup struct {
	Model, Precision, Flags, Source string
	GPUs, Versions                  []string
	// Release is the release to assume for rows without one.
	Release string
	// BatchedPerInput is max-num-batched-tokens divided by the nominal prompt length.
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

// notCompared is a source whose times to the first token are not compared with the law.
type notCompared struct{ Source, Reason string }

func readNotCompared(t testing.TB) (out []notCompared) {
	t.Helper()
	data, err := os.ReadFile("testdata/throughput-ttft.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// longestFitted is the longest prompt of the rows that decide on the constants of the time to the first token.
const longestFitted = 8192

// judgeTTFT sets the reason why a row's time to the first token is not compared.
func (r *run) judgeTTFT(apart []notCompared) {
	for _, of := range apart {
		if strings.Contains(r.source, of.Source) {
			r.noTTFT = of.Reason
			return
		}
	}
	if r.input > longestFitted {
		r.noTTFT = "no fitted row has prompts that long"
	}
}

// set adds the settings of InferenceX to a row.
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

// bench is a row with its deployment, ready for a prediction.
type bench struct {
	run
	model      *physics.Model
	experts    bool
	deployment physics.Deployment
	load       physics.Load
	serving    physics.Serving
	budget     physics.Budget
}

// formatOf returns the format for a row's precision.
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

// shapeOf returns the shape of a model, which may be published in another format.
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

// newBench sets up a row's deployment like its benchmark. InferenceX draws lengths from 0.8 of the nominal ones up, and
// sets max-model-len a little above these.
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
	// The row ran, so the model fitted: with fewer sequences than the release's default, or with a larger share of the
	// memory.
	for _, used := range [...]float64{0.9, 0.95} {
		if b.budget.MaxConcurrency >= 1 {
			break
		}
		b.serving.MaxNumSeqs, b.serving.Utilization = leastSequences, used
		b.budget = physics.Memory(m, gpu, b.deployment.Layout, &b.serving, engine)
	}
	return b
}

// leastSequences is the smaller one of the engine's defaults for max-num-seqs.
const leastSequences = 256

// release returns the engine's release. InferenceX's rows without one are from 2025.
func (r *run) release() string {
	switch {
	case strings.Contains(r.flags, "--performance-mode"):
		return "0.17" // the first release with this flag, although the source's page names another for all rows
	case r.engine == "vllm" && physics.IsRelease(r.version):
		return r.version
	default:
		return cmp.Or(r.unnamed, "0.13")
	}
}

// flag returns the number of a flag; 0 if the row does not have it.
func (r *run) flag(name string) int {
	_, after, _ := strings.Cut(r.flags, name)
	n := 0
	_, _ = fmt.Sscanf(strings.TrimLeft(after, "= "), "%d", &n)
	return n
}

// nominal returns the mean true length of requests with a nominal length, which is smaller.
func nominal(tokens int) int { return int(math.Round(0.9 * float64(tokens))) }

func (b *bench) pace() physics.Pace { return b.model.Speed(&b.deployment, b.load) }

// queues reports whether the law predicts a queue for the row. Its longest sequences have the nominal lengths.
func (b *bench) queues() bool {
	return b.model.Speed(&b.deployment, physics.Load{Input: b.input, Output: b.output, Concurrency: b.concurrency}).Queues
}
