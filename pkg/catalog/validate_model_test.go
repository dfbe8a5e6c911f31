// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hybrid is a model with every possible part of a shape.
const hybrid = `models:
- name: nn
  hubId: Org/NN
  shape: {layers: 8, hidden: 8, intermediate: 16, heads: 4, kvHeads: 2, headDim: 4, vocab: 32,
    moe: {experts: 4, topK: 2, intermediate: 8, sharedIntermediate: 8, sharedGate: true, denseLayers: 1, latentDim: 4},
    mla: {kvRank: 8, ropeDim: 2, qRank: 4, nopeDim: 2, valueDim: 4, outputRank: 2, outputGroups: 2, indexHeads: 2, indexDim: 2},
    pattern: [
      {count: 2, mixer: full, kvHeads: 1, headDim: 8, reusedIndex: true},
      {count: 2, mixer: window, window: 4, reusedKV: true, keysAreValues: true},
      {count: 2, mixer: mamba2, feedForward: none, state: {conv: 4, keyHeads: 1, valueHeads: 2, keyDim: 4, valueDim: 4}},
      {count: 1, mixer: chunk, window: 8, feedForward: dense, intermediate: 4},
      {count: 1, mixer: none, feedForward: experts}],
    extraParams: 10}
  context: 128
  toolParser: some_tool
  artifacts:
  - {engine: e, repo: Org/N, revision: main, quantization: f16, weightBytes: 100, weightBasis: exact, idleBytes: 10, flags: [{name: c, value: "1", why: because}]}
`

func TestHybridModelLoads(t *testing.T) {
	if _, err := load(files(map[string]string{"models.yaml": hybrid})); err != nil {
		t.Fatal(err)
	}
}

// Counts for the largest accepted shape do not overflow.
func TestBoundsOfShapesKeepProductsWithin64Bits(t *testing.T) {
	c, err := load(files(map[string]string{"models.yaml": `models:
- name: nn
  hubId: Org/NN
  shape: {layers: 4096, hidden: 262144, intermediate: 1048576, heads: 4096, kvHeads: 4096, headDim: 4096, valueDim: 4096,
    vocab: 16777216, qkvBias: true, wideQKNorm: true, gatedAttention: true,
    moe: {experts: 8192, topK: 8192, intermediate: 131072, sharedIntermediate: 1048576, bias: true},
    pattern: [{count: 4095, mixer: full}, {count: 1, mixer: mamba2, state: {conv: 64, keyHeads: 4096, valueHeads: 4096, keyDim: 4096, valueDim: 4096}}],
    extraParams: 1125899906842624}
  context: 16777216
  artifacts:
  - {engine: e, repo: Org/N, revision: main, quantization: f16, weightBytes: 8796093022208}
`}))
	if err != nil {
		t.Fatal(err)
	}
	m, _ := c.Model("nn")
	experts := int64(4096) * 8192 * 3 * 262144 * 131072
	if got := m.Shape.Params(); got < experts {
		t.Errorf("Params() = %d, less than the experts alone: %d", got, experts)
	}
	if got := m.Shape.ActiveParams(); got != m.Shape.Params() {
		t.Errorf("ActiveParams() = %d, want all %d, since all experts work", got, m.Shape.Params())
	}
}

// The error for a wrong fact is one line: the field, the value and the requirement.
func TestModelErrors(t *testing.T) {
	for _, tc := range []struct{ reason, old, replacement, want string }{
		{"layers missing from the groups", "count: 1, mixer: none", "count: 2, mixer: none", `shape.pattern: 9 layers in all groups together, but shape.layers is 8`},
		{"a group of nothing", "count: 1, mixer: none", "count: 0, mixer: none", `shape.pattern[4].count: 0 must be from 1 to 8`},
		{"an unknown mixer", "mixer: none", "mixer: rnn", `shape.pattern[4].mixer: "rnn" must be full, window, chunk, mamba2, deltanet or none`},
		{"a window of nothing", "window: 4, ", "", `shape.pattern[1].window: 0 is incompatible with mixer: window`},
		{"a window of full attention", "mixer: full,", "mixer: full, window: 4,", `shape.pattern[0].window: 4 is incompatible with mixer: full`},
		{"a state of attention", "mixer: mamba2", "mixer: full", `shape.pattern[2].mixer: full has no state: remove the field state`},
		{"no state", "mixer: full,", "mixer: deltanet,", `shape.pattern[0].mixer: deltanet needs the field state`},
		{"heads of no attention", "mixer: none,", "mixer: none, kvHeads: 1,", `shape.pattern[4].mixer: "none" does not attend, so it has neither kvHeads, headDim, reusedKV, keysAreValues nor reusedIndex`},
		{"KV heads of a group", "kvHeads: 1,", "kvHeads: 3,", `shape.pattern[0].kvHeads: 3 does not divide shape.heads: 4`},
		{"an unknown feed-forward part", "feedForward: dense", "feedForward: sparse", `shape.pattern[3].feedForward: "sparse" must be dense, experts or none, or absent`},
		{"a layer of nothing", "feedForward: experts", "feedForward: none", `shape.pattern[4].feedForward: "none" leaves a layer empty, because its mixer is none`},
		{"a convolution of nothing", "conv: 4", "conv: 0", `shape.pattern[2].state.conv: 0 must be from 1 to 64`},
		{"more experts chosen than there are", "topK: 2", "topK: 5", `shape.moe.topK: 5 must be from 1 to 4`},
		{"a thousand million experts", "experts: 4", "experts: 1000000000", `shape.moe.experts: 1e+09 must be from 1 to 8192`},
		{"only dense layers", "denseLayers: 1", "denseLayers: 8", `shape.moe.denseLayers: 8 must be from 0 to 7`},
		{"a gate of nothing", "sharedIntermediate: 8, ", "", `shape.moe.sharedGate: true requires sharedIntermediate`},
		{"a rank of nothing", "kvRank: 8", "kvRank: 0", `shape.mla.kvRank: 0 must be from 1 to 131072`},
		{"heads of no width", "ropeDim: 2, qRank: 4, nopeDim: 2", "ropeDim: 0, qRank: 4, nopeDim: 0", `shape.mla.nopeDim: 0 must be above 0 where ropeDim is 0`},
		{"groups of no rank", "outputRank: 2, ", "", `shape.mla.outputGroups: 2 is incompatible with outputRank: 0`},
		{"an indexer without heads", "indexHeads: 2, ", "", `shape.mla.indexDim: 2 is incompatible with indexHeads: 0`},
		{"dense layers without a width", "intermediate: 16, ", "", `shape.intermediate: 0 must be the width of the MLPs: some layers have one`},
		{"fewer parameters than none", "extraParams: 10", "extraParams: -1", `shape.extraParams: -1 must be from 0 to 1.125899906842624e+15`},
		{"a parser that is no name", "some_tool", `"--x"`, `toolParser: "--x" must be a parser's name such as hermes`},
		{"weights of nothing", "weightBytes: 100, weightBasis: exact, idleBytes: 10, ", "", `artifacts[0].files: [] must name a file, unless weightBytes is the size of all tensors`},
		{"files and weights", "weightBytes: 100,", "weightBytes: 100, files: [{path: w, bytes: 1}],", `artifacts[0].weightBytes: 100 must not be set for an artifact with files`},
		{"a basis of files", "weightBytes: 100, weightBasis: exact, idleBytes: 10,", "weightBasis: exact, files: [{path: w, bytes: 1}],", `artifacts[0].weightBasis: "exact" must not be set for an artifact with files`},
		{"an unknown basis", "weightBasis: exact", "weightBasis: guessed", `artifacts[0].weightBasis: "guessed" must be exact or estimated`},
		{"nothing loaded", "idleBytes: 10", "idleBytes: 100", `artifacts[0].idleBytes: 100 must be above 0 and below weightBytes: 100`},
		{"weights of no model", "weightBytes: 100", "weightBytes: 100000000000000", `artifacts[0].weightBytes: 1e+14 must be from 1 to 8.796093022208e+12`},
		{"a flag without a reason", ", why: because", "", `artifacts[0].flags[0].why: "" must be one line of at most 200 bytes`},
		{"a flag with dashes", "name: c,", "name: --c,", `artifacts[0].flags[0].name: "--c" must be a flag's name without dashes`},
		{"a flag twice", "{name: c, value", "{name: c, why: x}, {name: c, value", `artifacts[0].flags[1].name: "c" is given twice`},
		{"a value of two lines", `value: "1"`, `value: "1\n2"`, `artifacts[0].flags[0].value: "1\n2" must be one line`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			text := strings.Replace(hybrid, tc.old, tc.replacement, 1)
			if text == hybrid {
				t.Fatalf("%q does not occur", tc.old)
			}
			_, err := load(files(map[string]string{"models.yaml": text}))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if diff := cmp.Diff(`catalogue file "models.yaml": models[0] "nn": `+tc.want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}
