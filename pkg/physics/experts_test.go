// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// There is one published start of replicas that share experts: two of MiniMax-M2.5, each on a B200, with vLLM's default
// settings and without its estimate of CUDA graphs.
func TestSharedExpertsCalibration(t *testing.T) {
	s := newShelf(t)
	for _, row := range readStarts(t) {
		if row["id"] != "58" {
			continue
		}
		p, known := s.find(row["hf_repo"])
		if !known {
			t.Fatalf("there is no model %s", row["hf_repo"])
		}
		b := physics.Memory(s.model(t, p), &sku.GPU{Class: row["gpu"], MemoryGiB: row.number(t, "gpu_total_gib")},
			physics.Layout{TP: 1, PP: 1, DP: 2, EP: true, Nodes: 1, LinkedGPUs: 8},
			&physics.Serving{MaxModelLen: 8192, Utilization: row.number(t, "gpu_mem_util"), KVType: "fp8", Version: "0.20"}, s.vllm(t))
		logged := row.number(t, "kv_tokens")
		by := float64(b.KVTokens)/logged - 1
		t.Logf("figure: KV cache of replicas that share experts, row 58, %s: %d tokens, logged %.0f: %+.1f %%", row["model"], b.KVTokens, logged, 100*by)
		if by > 0 || by < -0.05 {
			t.Errorf("%+.1f %% off, want at most 5 %% and no more than was logged", 100*by)
		}
		return
	}
	t.Fatal("row 58 is missing")
}

// mixture returns a model with 8 experts of 2 MiB in each of 4 layers, and other weights.
func mixture(t *testing.T) (*physics.Model, *catalog.Engine) {
	s := newShelf(t)
	shape := model.Shape{
		Layers: 4, Hidden: 256, Heads: 8, KVHeads: 2, HeadDim: 32, Vocab: 6400, Intermediate: 512,
		MoE: &model.MoE{Experts: 8, TopK: 2, Intermediate: 1024 * 4 / 3},
	}
	return s.model(t, published{Quantization: "bf16", Shape: shape}), s.vllm(t)
}

// Whole experts are spread over all GPUs. Other weights are cut over the GPUs of a replica.
func TestWeightsOfWholeExperts(t *testing.T) {
	m, _ := mixture(t)
	one := m.WeightBytes(physics.Layout{TP: 1, PP: 1})
	experts := 2 * (one - m.WeightBytes(physics.Layout{TP: 1, PP: 1, DP: 2, EP: true}))
	if share := experts / one; share < 0.5 || share > 1 {
		t.Fatalf("the experts are %.2f of the weights, which tells little", share)
	}
	for _, tc := range []struct {
		reason string
		layout physics.Layout
		want   float64
	}{
		{"one GPU has them all", physics.Layout{TP: 1, PP: 1, DP: 1, EP: true}, one},
		{"four replicas have two each", physics.Layout{TP: 1, PP: 1, DP: 4, EP: true}, one - experts*3/4},
		{"three replicas: the fullest has three of eight", physics.Layout{TP: 1, PP: 1, DP: 3, EP: true}, one - experts*5/8},
		{
			"two GPUs of a replica: as if they were cut",
			physics.Layout{TP: 2, PP: 1, DP: 1, EP: true},
			m.WeightBytes(physics.Layout{TP: 2, PP: 1}),
		},
		{
			"two replicas of two GPUs: the rest as on two, the experts over four",
			physics.Layout{TP: 2, PP: 1, DP: 2, EP: true},
			m.WeightBytes(physics.Layout{TP: 2, PP: 1}) - experts/4,
		},
	} {
		if got := m.WeightBytes(tc.layout); math.Abs(got-tc.want) > 1 {
			t.Errorf("%s: %.0f bytes, want %.0f", tc.reason, got, tc.want)
		}
	}
}

// Unmeasured figures are marked as estimates. A batch of all ranks takes memory on each rank. Each replica has its own
// KV cache.
func TestMemoryOfWholeExperts(t *testing.T) {
	m, e := mixture(t)
	gpu := sku.GPU{MemoryGiB: 80, BandwidthGBs: 1000, PeakTFLOPs: map[string]float64{"bf16": 100}, Link: "nvlink4"}
	s := physics.Serving{MaxModelLen: 4096, MaxNumSeqs: 16, MaxBatchedTokens: 1 << 18, Utilization: 0.9}
	budget := func(l physics.Layout) physics.Budget { l.LinkedGPUs = 8; return physics.Memory(m, &gpu, l, &s, e) }
	alone, four := budget(physics.Layout{TP: 1, PP: 1, DP: 1}), budget(physics.Layout{TP: 1, PP: 1, DP: 4, EP: true})
	if copies := budget(physics.Layout{TP: 1, PP: 1, DP: 4}); copies != alone {
		t.Errorf("a copy of the model takes %+v, one alone %+v", copies, alone)
	}
	if four.Activation <= alone.Activation || four.NonTorch <= alone.NonTorch || four.Weights >= alone.Weights {
		t.Errorf("four replicas that share experts take %+v each, one alone %+v", four, alone)
	}
	if need := m.KVNeed(physics.Layout{TP: 1, PP: 1, DP: 4, EP: true}, &s, 4096, 4, e); need != m.KVNeed(physics.Layout{TP: 1, PP: 1, DP: 1}, &s, 4096, 4, e) {
		t.Errorf("a replica needs %v GiB of cache", need)
	}
	d := physics.Deployment{GPU: &gpu, Layout: physics.Layout{TP: 1, PP: 1, DP: 4, EP: true, LinkedGPUs: 8}, Serving: &s, Budget: &four, Engine: e}
	if p := m.Speed(&d, physics.Load{Input: 512, Output: 128, Concurrency: 8}); p.Basis != "estimated" || p.TPOT <= 0 {
		t.Errorf("pace %+v, want an estimate", p)
	}
}
