// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
)

// ofExperts returns a model of 128 experts, of which each token uses four.
func ofExperts() model.Shape {
	return model.Shape{
		Layers: 36, Hidden: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Vocab: 201088,
		MoE: &model.MoE{Experts: 128, TopK: 4, Intermediate: 2880},
	}
}

// Short prompts that arrive together are computed in one step, so they read the weights only once.
func TestShortPromptsAreComputedTogether(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	x.load = physics.Load{Input: 128, Output: 4, Concurrency: 256}
	together := x.pace(t, s, seventy())
	x.serving.MaxBatchedTokens = 128
	alone := x.pace(t, s, seventy())
	if together.OutputTokensPerSecond < 1.5*alone.OutputTokensPerSecond {
		t.Errorf("%.0f tokens/s in batches of 8192 tokens, %.0f in batches of one prompt", together.OutputTokensPerSecond,
			alone.OutputTokensPerSecond)
	}
}

// If the GPU has no 8-bit arithmetic, it multiplies experts of 8 bits like experts of 16 bits, not like dense matrices.
func TestExpertsWithoutEightBitsAreNoDenseMatrices(t *testing.T) {
	s := newShelf(t)
	gpu, _ := s.catalog.GPU("A100-80-SXM")
	x := ordinary(t, s)
	x.gpu, x.kv, x.load = gpu, 100, physics.Load{Input: 8000, Output: 2, Concurrency: 64}
	x.format = "fp8"
	eight := x.pace(t, s, ofExperts())
	x.format = "bf16"
	sixteen := x.pace(t, s, ofExperts())
	if ratio := eight.OutputTokensPerSecond / sixteen.OutputTokensPerSecond; ratio > 1.2 {
		t.Errorf("prompts of experts in 8 bits are %.2f times as fast as in 16 on a GPU without 8-bit arithmetic", ratio)
	}
}

// Releases that schedule while the GPU works lose less time in each step.
func TestEarlierReleasesLoseMorePerStep(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	speed := x.engine.Speed
	x.load = physics.Load{Input: 10, Output: 1000, Concurrency: 1}
	now := x.pace(t, s, seventy())
	x.serving.Version = "0.13"
	before := x.pace(t, s, seventy())
	want := (speed.Former.StepMicros - speed.StepMicros) / 1e3
	if got := before.TPOT - now.TPOT; got < 0.99*want || got > 1.01*want {
		t.Errorf("release 0.13 takes %.3f ms more per token, want %.3f", got, want)
	}
}

// Some releases multiplied a whole block of rows by every expert on Hopper, unless eight GPUs shared the model.
func TestSomeReleasesMultiplyWholeBlocks(t *testing.T) {
	s := newShelf(t)
	for _, tc := range []struct {
		reason, version, format, gpu string
		tp                           int
		blocks                       bool
	}{
		{"DeepGEMM multiplies every batch", "0.12.0", "fp8", "H100-80-SXM", 4, true},
		{"it began with this release", "0.11.1", "fp8", "H200-141-SXM", 2, true},
		{"only large batches used DeepGEMM", "0.11.0", "fp8", "H100-80-SXM", 4, false},
		{"empty rows are skipped", "0.13.0", "fp8", "H100-80-SXM", 4, false},
		{"empty rows are skipped", "", "fp8", "H100-80-SXM", 4, false},
		{"eight GPUs use Triton", "0.12.0", "fp8", "H100-80-SXM", 8, false},
		{"Ampere has no DeepGEMM", "0.12.0", "fp8", "A100-80-SXM", 4, false},
		{"DeepGEMM multiplies blocks of 8 bits", "0.12.0", "bf16", "H100-80-SXM", 4, false},
		{"and scales each block", "0.12.0", "fp8-channel", "H100-80-SXM", 4, false},
	} {
		gpu, known := s.catalog.GPU(tc.gpu)
		if !known {
			t.Fatalf("there is no GPU %q", tc.gpu)
		}
		x := ordinary(t, s)
		x.gpu, x.format, x.serving.Version, x.layout.TP, x.kv = gpu, tc.format, tc.version, tc.tp, 20
		x.load = physics.Load{Input: 10, Output: 500, Concurrency: 8}
		got := x.pace(t, s, ofExperts()).TPOT
		x.engine.Speed.FormerBlocks = catalog.FormerBlocks{}
		if plain := x.pace(t, s, ofExperts()).TPOT; (got > 1.2*plain) != tc.blocks {
			t.Errorf("release %q in %s on %d × %s: %.2f ms per token, %.2f without blocks, want blocks %t: %s", tc.version, tc.format,
				tc.tp, tc.gpu, got, plain, tc.blocks, tc.reason)
		}
	}
}

// NCCL computes large sums over PCIe, at 28 to 35 GB/s with PCIe 5. That is ten times as fast as vLLM's own kernel.
func TestSumsOverPCIeAreThoseOfNCCL(t *testing.T) {
	seen := 0
	for _, table := range newShelf(t).vllm(t).Speed.AllReduce {
		if !slices.Contains(table.Links, "pcie5") || table.GPUs < 4 {
			continue
		}
		seen++
		last, gpus := len(table.Bytes)-1, float64(table.GPUs)
		bus := 2 * (gpus - 1) / gpus * table.Bytes[last] / table.Micros[last] / 1e3
		if bus < 27.5 || bus > 35.5 {
			t.Errorf("%d GPUs sum %.0f bytes at %.1f GB/s, want 28 to 35", table.GPUs, table.Bytes[last], bus)
		}
	}
	if seen != 2 {
		t.Errorf("%d tables for PCIe 5 and 4 or 8 GPUs, want 2", seen)
	}
}

// GPUs without NVLink sum over the PCIe of their own machine.
func TestSumsCrossThePCIeOfTheMachine(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	x.layout.LinkedGPUs = 2
	fifth := x.pace(t, s, seventy())
	x.gpu.HostLink = ""
	fourth := x.pace(t, s, seventy())
	if fifth.TPOT >= fourth.TPOT {
		t.Errorf("%.2f ms per token over PCIe 5, %.2f over PCIe 4", fifth.TPOT, fourth.TPOT)
	}
}

// The more unevenly routers choose, the fewer experts a batch reads. A single token reads as many as it chooses.
func TestSkewedRoutersReadFewerExperts(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	x.format, x.load = "mxfp4", physics.Load{Input: 100, Output: 500, Concurrency: 16}
	before := 0.0
	for _, skew := range []float64{4, 2, 1, 0.5, 0.1, 1e-6, 0} {
		x.engine.Speed.Skew = skew
		now := x.pace(t, s, ofExperts()).TPOT
		if now < before {
			t.Errorf("skew %v takes %.3f ms per token, more skew took %.3f", skew, now, before)
		}
		before = now
	}
}

// Sparse attention reads only the tokens that its indexer chooses, so a long context costs little more than the
// indexer's keys.
func TestSparseAttentionReadsChosenTokens(t *testing.T) {
	s := newShelf(t)
	shape := model.Shape{
		Layers: 60, Hidden: 7168, Intermediate: 18432, Heads: 128, KVHeads: 128, HeadDim: 128, Vocab: 129280,
		MLA: &model.MLA{KVRank: 512, RopeDim: 64, QRank: 1536, NopeDim: 128, ValueDim: 128},
	}
	x := ordinary(t, s)
	x.kv, x.serving.MaxModelLen, x.load = 60, 1<<17, physics.Load{Input: 100000, Output: 1000, Concurrency: 4}
	dense := x.pace(t, s, shape)
	shape.MLA.IndexHeads, shape.MLA.IndexDim = 64, 128
	sparse := x.pace(t, s, shape)
	if sparse.TPOT >= dense.TPOT {
		t.Errorf("sparse attention takes %.2f ms per token of a long context, full attention %.2f", sparse.TPOT, dense.TPOT)
	}
}

// The requests of a plan do not all start at once, as in a benchmark. So they wait for fewer prompts. The wait grows
// with the share of time that prompts take.
func TestArrivalsAtRandomAreNoBurst(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	x.load.Concurrency = 64
	burst := x.pace(t, s, seventy())
	x.load.Open = true
	open := x.pace(t, s, seventy())
	if open.TTFT >= burst.TTFT || open.TTFT <= 0 {
		t.Errorf("%.0f ms to the first token of requests at random, %.0f of a burst", open.TTFT, burst.TTFT)
	}
	if open.OutputTokensPerSecond < burst.OutputTokensPerSecond {
		t.Errorf("%.0f tokens/s of requests at random, %.0f of a burst", open.OutputTokensPerSecond, burst.OutputTokensPerSecond)
	}
	before := 0.0
	for _, concurrency := range []int{1, 2, 4, 8, 16, 32, 64} {
		x.load.Concurrency = concurrency
		now := x.pace(t, s, seventy()).TTFT
		if now < before {
			t.Errorf("%d requests at once: %.0f ms to the first token, fewer took %.0f", concurrency, now, before)
		}
		before = now
	}
}

// GPUs with whole experts wait for the busiest one. If each GPU has a part of every expert, none waits. If a step reads
// all experts anyway, the only wait is for the popular ones.
func TestGPUsOfWholeExpertsWaitForTheFullest(t *testing.T) {
	s := newShelf(t)
	waits := func(gpus, clients int) float64 {
		x := ordinary(t, s)
		x.kv, x.format, x.layout.TP = 60, "mxfp4", gpus
		x.load = physics.Load{Input: 10, Output: 1000, Concurrency: clients}
		cut := x.pace(t, s, ofExperts())
		x.layout.EP = true
		return x.pace(t, s, ofExperts()).TPOT / cut.TPOT
	}
	if got := waits(1, 4); got != 1 {
		t.Errorf("one GPU takes %.3f times as long with whole experts", got)
	}
	two, eight, many := waits(2, 4), waits(8, 4), waits(8, 256)
	if two <= 1.01 || eight <= two || eight > 2 {
		t.Errorf("two GPUs take %.3f times as long with whole experts, eight %.3f: more wait longer, within reason", two, eight)
	}
	if many >= eight {
		t.Errorf("eight GPUs take %.3f times as long with whole experts under 256 clients, %.3f under 4", many, eight)
	}
}

// A release with asynchronous scheduling switched on loses no more time than releases with it by default.
func TestAsynchronousSchedulingOnRequest(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	now := x.pace(t, s, seventy())
	x.serving.Version, x.serving.Async = "0.13", true
	if asked := x.pace(t, s, seventy()); asked.TPOT != now.TPOT {
		t.Errorf("a token takes %.3f ms, %.3f with a later release", asked.TPOT, now.TPOT)
	}
}

// Early releases gained nothing on Hopper from a cache of 8 bits: they read half the bytes at half the rate.
func TestEarlierReleasesReadNarrowCachesSlowly(t *testing.T) {
	s := newShelf(t)
	for _, tc := range []struct {
		gpu, version, kvType string
		slower               bool
	}{
		{"H100-80-SXM", "0.10", "fp8", true},
		{"H100-80-SXM", "0.12", "fp8", false},
		{"H100-80-SXM", "0.10", "", false},
		{"B200-180-SXM", "0.10", "fp8", false},
	} {
		x := ordinary(t, s)
		x.gpu, _ = s.catalog.GPU(tc.gpu)
		x.serving.KVType, x.serving.Async = tc.kvType, true
		x.load = physics.Load{Input: 3000, Output: 500, Concurrency: 64}
		now := x.pace(t, s, seventy())
		x.serving.Version = tc.version
		if before := x.pace(t, s, seventy()); before.TPOT > 1.02*now.TPOT != tc.slower {
			t.Errorf("%+v: a token takes %.2f ms, %.2f with today's release", tc, before.TPOT, now.TPOT)
		}
	}
}

// In Nemotron 3, a layer is a Mamba 2 mixer, attention or experts alone. So a layer of experts has no overhead of
// attention.
func TestLayersOfExpertsAlone(t *testing.T) {
	s := newShelf(t)
	nano, known := s.find("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8")
	if !known {
		t.Fatal("there is no Nemotron 3 Nano")
	}
	token := func(layer, experts float64, shape model.Shape) float64 {
		x := ordinary(t, s)
		x.format, x.layout.TP, x.kv, x.load = "fp8", 1, 20, physics.Load{Input: 10, Output: 1000, Concurrency: 1}
		x.engine.Speed = x.engine.Speed.Clone()
		x.engine.Speed.LayerMicros = layer
		kernel := x.engine.Speed.Experts["fp8"]
		kernel.LayerMicros = experts
		x.engine.Speed.Experts["fp8"] = kernel
		return 1e3 * x.pace(t, s, shape).TPOT
	}
	for _, tc := range []struct {
		reason         string
		shape          model.Shape
		layer, experts float64
		want           float64
	}{
		{"29 mixers, and 23 layers of experts without half of 30", nano.Shape, 30, 80, 29*15 + 23*(80-15)},
		{"experts take as long as a dense MLP", nano.Shape, 30, 20, 29*15 + 23*15},
		{"but no longer than a whole layer of experts", nano.Shape, 30, 10, 29*15 + 23*10},
		{"36 layers of attention and experts", ofExperts(), 30, 80, 36 * 80},
	} {
		none := token(0, 0, tc.shape)
		if got := token(tc.layer, tc.experts, tc.shape) - none; math.Abs(got-tc.want) > 0.02*tc.want {
			t.Errorf("layers take %.0f us, want %.0f: %s", got, tc.want, tc.reason)
		}
	}
}
