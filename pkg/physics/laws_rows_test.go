// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Each law is checked on the rows that show it, apart from all others. The bounds are on the median error without its
// sign. They are near the present errors, so that a change of one law cannot hide in the medians of all rows.
func TestLawsOnTheirRows(t *testing.T) {
	rows := measured(benches(t))
	for _, tc := range []struct {
		law    string
		of     func(*bench) bool
		tokens bool // compare tokens per second, because bursts have no comparable time per token
		most   float64
	}{
		{"short prompts share a step (at most 128 tokens)", func(b *bench) bool { return b.input <= 128 }, true, 25},
		{"experts of 8 bits on A100", func(b *bench) bool { return isA100(b) && b.experts && b.precision == "fp8" }, true, 5},
		{"steps without asynchronous scheduling", func(b *bench) bool { return !b.burst && !b.serving.Async && !b.since14() }, false, 7},
		{"steps with asynchronous scheduling on request", func(b *bench) bool { return !b.burst && b.serving.Async }, false, 7},
		{"steps since 0.14", func(b *bench) bool { return !b.burst && b.since14() }, false, 7},
		{"experts since 0.14", func(b *bench) bool { return !b.burst && b.since14() && b.experts }, false, 7},
		{"dense models in 16 bits, at most 4 clients", func(b *bench) bool { return isDense16(b) && b.concurrency <= 4 }, false, 7},
		{"dense models in 16 bits, at least 8 clients", func(b *bench) bool { return isDense16(b) && b.concurrency >= 8 }, false, 7},
		{"experts of 4 bits in integers on Blackwell", func(b *bench) bool { return isBlackwell(b) && b.precision == "int4" }, false, 10},
		{"gpt-oss on A100", func(b *bench) bool { return isA100(b) && b.precision == "mxfp4" }, true, 25},
		{"sparse attention", func(b *bench) bool { return strings.Contains(b.run.model, "V3.2") }, true, 12},
	} {
		var off errs
		for _, b := range rows {
			if !tc.of(b) {
				continue
			}
			p := b.pace()
			predicted, row := p.TPOT, b.tpot
			if tc.tokens {
				predicted, row = p.OutputTokensPerSecond, b.tokens
			}
			if !math.IsNaN(row) {
				off = append(off, predicted/row-1)
			}
		}
		if len(off) == 0 {
			t.Errorf("%s: no row shows it", tc.law)
			continue
		}
		what := "TPOT"
		if tc.tokens {
			what = "tokens/s"
		}
		median := 100 * off.sizes().quantile(0.5)
		t.Logf("figure: law, %s, %d rows: median error of %s %.1f %% (at most %v), from %+.0f to %+.0f %%", tc.law, len(off), what, median,
			tc.most, 100*slices.Min(off), 100*slices.Max(off))
		if !(median <= tc.most) {
			t.Errorf("%s: the median error is %.1f %%, want at most %v %%", tc.law, median, tc.most)
		}
	}
}

// since14 reports whether a row's release schedules while the GPU works, without a flag.
func (b *bench) since14() bool { return !physics.Older(b.serving.Version, "0.14") }

func isA100(b *bench) bool      { return b.deployment.GPU.ComputeCapability == "8.0" }
func isBlackwell(b *bench) bool { return strings.HasPrefix(b.deployment.GPU.ComputeCapability, "10.") }
func isDense16(b *bench) bool   { return !b.burst && !b.experts && b.precision == "bf16" }

// A pipeline on linked GPUs yields 0.7 of the tokens of tensor parallelism: a burst of 1,000 requests of ShareGPT to
// gpt-oss-120b on two H100 (rows gps-53, and 7,649 tokens/s in the same source). Such a burst passes through all these
// numbers of requests as it ends.
func TestPipelinesOnLinkedGPUs(t *testing.T) {
	for _, b := range benches(t) {
		if b.id != "gps-53" {
			continue
		}
		var ratios errs
		for _, clients := range []int{4, 16, 64, 256} {
			load := physics.Load{Input: b.input, Output: b.output, Concurrency: clients}
			speed := func(tp, pp int) float64 {
				d := b.deployment
				d.Layout.TP, d.Layout.PP = tp, pp
				budget := physics.Memory(b.model, d.GPU, d.Layout, &b.serving, d.Engine)
				d.Budget = &budget
				return b.model.Speed(&d, load).OutputTokensPerSecond
			}
			ratios = append(ratios, speed(1, 2)/speed(2, 1))
		}
		t.Logf("figure: law, pipelines on linked GPUs: %.2f to %.2f of the tokens of tensor parallelism with 4 to 256 requests, measured 0.70",
			slices.Min(ratios), slices.Max(ratios))
		if median := ratios.quantile(0.5); median < 0.63 || median > 0.77 {
			t.Errorf("a pipeline yields %.2f of the tokens of tensor parallelism, measured 0.70", median)
		}
		return
	}
	t.Fatal("row gps-53 is missing")
}

// Fixed work of sparse attention: its kernels compute a multiple of some heads on each GPU, so more GPUs do not make it
// faster, and as many keys for a short prompt as for a long one.
func TestSparseKernelsHaveFixedWork(t *testing.T) {
	s := newShelf(t)
	shape, known := s.find("deepseek-ai/DeepSeek-V3.2")
	if !known {
		t.Fatal("there is no DeepSeek-V3.2")
	}
	x := ordinary(t, s)
	x.format, x.kv = "fp8", 60
	x.gpu, _ = s.catalog.GPU("H200-141-SXM")
	x.layout.TP, x.load = 8, physics.Load{Input: 128, Output: 1, Concurrency: 1}
	x.serving.MaxModelLen = 1 << 16
	heads := func(n int) physics.Pace {
		x.engine.SparseAttention = []catalog.SparseGPU{{Capability: "9.0", Heads: n}}
		return x.pace(t, s, shape.Shape)
	}
	free, padded := heads(0), heads(64)
	if padded.TTFT <= free.TTFT || padded.TPOT <= free.TPOT {
		t.Errorf("with kernels of 64 heads: %+v, of any number: %+v: want slower", padded, free)
	}
	if again := heads(16); again.TTFT != free.TTFT { // 128 heads over 8 GPUs
		t.Errorf("kernels of 16 heads pad 16 heads: %+v, %+v without", again, free)
	}
}

// A replica computes one step at a time, so prompts take at most all of its time. One client alone shows how long its
// prompt takes.
func TestPromptsTakeTurns(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	x.layout.TP, x.format, x.kv, x.serving.MaxModelLen = 1, "bf16", 400, 1<<16
	for _, load := range []physics.Load{{Input: 32000, Output: 100}, {Input: 8000, Output: 10}} {
		load.Concurrency = 1
		x.load = load
		alone, law := x.pace(t, s, llama3()), &x.engine.Speed
		prompt := (alone.TTFT - law.FirstMicros/1e3 - law.FirstSteps*alone.TPOT) / 1e3
		for _, clients := range []int{2, 3, 4, 8, 64} {
			x.load.Concurrency = clients
			busy := x.pace(t, s, llama3()).OutputTokensPerSecond / float64(load.Output) * prompt
			if busy > 1.1 { // a prompt takes less time if it joins a step that reads the weights anyway
				t.Errorf("%d clients with %d tokens: prompts take %.2f of the time", clients, load.Input, busy)
			}
		}
	}
}

// llama.cpp reaches most of the bandwidth of cards with GDDR and half of that of cards with HBM. One sequence of a 7B
// model in 16 bits, 128 tokens.
func TestLlamaCppByClassOfCard(t *testing.T) {
	s := newShelf(t)
	engine, known := s.catalog.Engine("llamacpp")
	if !known {
		t.Fatal("there is no engine llamacpp")
	}
	shape := llama3()
	shape.Intermediate, shape.KVHeads, shape.Vocab = 11008, 32, 32000
	for _, tc := range []struct {
		gpu, source string
		from, to    float64
	}{
		{"RTX4090-24", "61.0 tokens/s in ggml-org/llama.cpp pull request 4766", 0.95 * 61.0, 1.05 * 61.0},
		{"A100-80-PCIe", "0.5 to 0.65 of the bandwidth", 0.5 * 1935 / 13.48, 0.65 * 1935 / 13.48},
		{"H100-80-PCIe", "0.5 to 0.65 of the bandwidth", 0.5 * 2000 / 13.48, 0.65 * 2000 / 13.48},
		{"H100-80-SXM", "0.5 to 0.65 of the bandwidth", 0.5 * 3352 / 13.48, 0.65 * 3352 / 13.48},
	} {
		var gpu sku.GPU
		if gpu, known = s.catalog.GPU(tc.gpu); !known {
			t.Errorf("there is no GPU %q", tc.gpu)
			continue
		}
		x := setting{
			format: "f16", gpu: gpu, layout: physics.Layout{TP: 1, PP: 1, DP: 1, Nodes: 1},
			serving: physics.Serving{MaxModelLen: 512, MaxNumSeqs: 1}, load: physics.Load{Input: 1, Output: 128, Concurrency: 1}, engine: engine,
		}
		got := 1e3 / x.pace(t, s, shape).TPOT
		t.Logf("figure: law, llama.cpp on %s: %.1f tokens/s, published: %s (%.1f to %.1f)", tc.gpu, got, tc.source, tc.from, tc.to)
		if got < tc.from || got > tc.to {
			t.Errorf("%s: %.1f tokens/s, want %.1f to %.1f: %s", tc.gpu, got, tc.from, tc.to, tc.source)
		}
	}
}
