// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"testing"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
)

// llama3 returns the shape of Llama 3 8B.
func llama3() model.Shape {
	return model.Shape{Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256}
}

// Prompts far longer than in the fit take as long as published, because attention has its own law. Llama 3 8B on one
// A100 with FlashAttention 2 takes 3 minutes for 300,000 tokens and 30 for a million (the authors of MInference in
// issue 84 of microsoft/MInference, and their paper). No constant is fitted to these times.
func TestLongPromptsTakeAsLongAsPublished(t *testing.T) {
	s := newShelf(t)
	gpu, _ := s.catalog.GPU("A100-80-SXM")
	for _, tc := range []struct {
		tokens  int
		seconds float64
	}{{300_000, 180}, {1_000_000, 1800}} {
		x := ordinary(t, s)
		x.gpu, x.format, x.kv = gpu, "bf16", 400
		x.layout.TP, x.layout.LinkedGPUs = 1, 0
		x.serving.MaxModelLen, x.load = tc.tokens+2, physics.Load{Input: tc.tokens, Output: 1, Concurrency: 1}
		if got := x.pace(t, s, llama3()).TTFT / 1e3; got < 0.8*tc.seconds || got > 1.2*tc.seconds {
			t.Errorf("%d tokens take %.0f s, measured %.0f", tc.tokens, got, tc.seconds)
		}
	}
}

// Attention to twice the tokens takes four times as long. Short prompts reach less of the peak than long ones.
func TestAttentionGrowsWithTheSquare(t *testing.T) {
	s := newShelf(t)
	x := ordinary(t, s)
	x.layout.TP, x.format, x.kv = 1, "bf16", 400
	at := func(tokens int) float64 {
		x.serving.MaxModelLen, x.load = tokens+2, physics.Load{Input: tokens, Output: 1, Concurrency: 1}
		return x.pace(t, s, llama3()).TTFT
	}
	if ratio := at(1<<20) / at(1<<19); ratio < 3.7 || ratio > 4 {
		t.Errorf("a million tokens take %.2f times as long as half of them, want nearly 4", ratio)
	}
	half := x.engine.Speed.AttentionTokens
	with := at(2000)
	x.engine.Speed.AttentionTokens = 0
	without := at(2000)
	x.engine.Speed.AttentionTokens = 2 * half
	if twice := at(2000); with <= without || twice <= with {
		t.Errorf("%.2f ms with attentionTokens %v, %.2f with twice, %.2f with none", with, half, twice, without)
	}
}
