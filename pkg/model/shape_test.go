// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/model"
)

// The numbers of parameters are the publishers' figures. The bytes of KV cache per token at 16 bits are from published
// start-up logs.
func TestShapeArithmetic(t *testing.T) {
	type figures struct{ Params, KVBytes int64 }
	for _, tc := range []struct {
		reason string
		shape  model.Shape
		want   figures
	}{
		{
			reason: "an untied model without biases",
			shape: model.Shape{
				Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256,
			},
			want: figures{Params: 8_030_261_248, KVBytes: 131_072},
		},
		{
			reason: "a tied model counts its embedding once; query, key and value have biases",
			shape: model.Shape{
				Layers: 24, Hidden: 896, Intermediate: 4864, Heads: 14, KVHeads: 2, HeadDim: 64, Vocab: 151936,
				Tied: true, QKVBias: true,
			},
			want: figures{Params: 494_032_768, KVBytes: 12_288},
		},
		{
			reason: "the head dimension is not hidden/heads; queries and keys are normalised",
			shape: model.Shape{
				Layers: 36, Hidden: 4096, Intermediate: 12288, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 151936,
				QKNorm: true,
			},
			want: figures{Params: 8_190_735_360, KVBytes: 147_456},
		},
		{
			reason: "as many KV heads as heads",
			shape: model.Shape{
				Layers: 32, Hidden: 3072, Intermediate: 8192, Heads: 32, KVHeads: 32, HeadDim: 96, Vocab: 32064,
			},
			want: figures{Params: 3_821_079_552, KVBytes: 393_216},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := figures{Params: tc.shape.Params(), KVBytes: int64(tc.shape.KVBytes(2))}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestArtifactBytes(t *testing.T) {
	for _, tc := range []struct {
		reason string
		files  []model.File
		bytes  int64
		exact  bool
	}{
		{reason: "no basis means exact", files: []model.File{{Bytes: 5}, {Bytes: 7, BytesBasis: model.BytesExact}}, bytes: 12, exact: true},
		{reason: "one estimate makes the sum an estimate", files: []model.File{{Bytes: 5}, {Bytes: 7, BytesBasis: model.BytesEstimated}}, bytes: 12},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			a := model.Artifact{Files: tc.files}
			if got := a.Bytes(); got != tc.bytes {
				t.Errorf("Bytes() = %d, want %d", got, tc.bytes)
			}
			if got := a.BytesExact(); got != tc.exact {
				t.Errorf("BytesExact() = %v, want %v", got, tc.exact)
			}
		})
	}
}

func TestCloneSharesNothing(t *testing.T) {
	build := func() model.Model {
		return model.Model{
			Aliases:   []string{"a"},
			Artifacts: []model.Artifact{{Repo: "r", Files: []model.File{{Path: "f"}}, Flags: []model.Flag{{Name: "g"}}}},
			Shape: model.Shape{
				MoE: &model.MoE{Experts: 2}, MLA: &model.MLA{KVRank: 2},
				Pattern: []model.LayerGroup{{Count: 1, State: &model.State{Conv: 4}}},
			},
		}
	}
	original := build()
	clone := original.Clone()
	if diff := cmp.Diff(original, clone); diff != "" {
		t.Fatalf("clone differs (-want +got):\n%s", diff)
	}
	clone.Aliases[0], clone.Artifacts[0].Repo, clone.Artifacts[0].Files[0].Path = "x", "x", "x"
	clone.Artifacts[0].Flags[0].Name = "x"
	clone.Shape.MoE.Experts, clone.Shape.MLA.KVRank = 3, 3
	clone.Shape.Pattern[0].Count, clone.Shape.Pattern[0].State.Conv = 3, 3
	if diff := cmp.Diff(build(), original); diff != "" {
		t.Errorf("changing the clone changed the original (-want +got):\n%s", diff)
	}
}
