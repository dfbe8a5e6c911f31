// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Formats with round figures.
func bf16() model.Quantization {
	return model.Quantization{Name: "bf16", BytesPerParam: 2, Scope: model.ScopeAll}
}

func linears() model.Quantization {
	return model.Quantization{Name: "fp8", BytesPerParam: 1, Scope: model.ScopeLinears}
}

func experts() model.Quantization {
	return model.Quantization{Name: "mxfp4", BytesPerParam: 0.5, Scope: model.ScopeExperts, LoadedFactor: 1.5}
}

// small returns a shape with these parameters: attention 8192, keys and values 2048, MLP 24576 and norms 128 in each
// layer, 8192 each in the embedding and the output matrix, and 64 in the last norm.
func small(change func(*model.Shape)) model.Shape {
	s := model.Shape{Layers: 4, Hidden: 64, Intermediate: 128, Heads: 8, KVHeads: 2, HeadDim: 8, Vocab: 128}
	if change != nil {
		change(&s)
	}
	return s
}

const (
	smallSplit, smallKV, smallNorms, smallMatrix, smallLast = 8192 + 24576, 2048, 128, 8192, 64

	smallLayer = smallSplit + smallKV + smallNorms
)

func TestWeightsOfTheFullestGPU(t *testing.T) {
	mixture := func(s *model.Shape) {
		s.Intermediate = 128
		s.MoE = &model.MoE{Experts: 8, TopK: 2, Intermediate: 32, DenseLayers: 1}
	}
	const mixtureLayer = 8192 + 2048 + 128 + 64*8 + 8*3*64*32
	for _, tc := range []struct {
		reason string
		change func(*model.Shape)
		format model.Quantization
		stated int64
		tp, pp int
		want   float64
	}{
		{
			reason: "one GPU holds everything", format: bf16(), tp: 1, pp: 1,
			want: 2 * (4*smallLayer + 2*smallMatrix + smallLast),
		},
		{
			reason: "two GPUs: all but the norms is cut", format: bf16(), tp: 2, pp: 1,
			want: 2 * (4*((smallSplit+smallKV)/2+smallNorms) + smallMatrix + smallLast),
		},
		{
			reason: "more GPUs than KV heads: each has one head", format: bf16(), tp: 4, pp: 1,
			want: 2 * (4*(smallSplit/4+smallKV/2+smallNorms) + smallMatrix/2 + smallLast),
		},
		{
			reason: "the vocabulary is padded to 64", format: bf16(), tp: 1, pp: 1,
			change: func(s *model.Shape) { s.Vocab = 100 },
			want:   2 * (4*smallLayer + 2*smallMatrix + smallLast),
		},
		{
			reason: "a tied model has one matrix", format: bf16(), tp: 1, pp: 1,
			change: func(s *model.Shape) { s.Tied = true },
			want:   2 * (4*smallLayer + smallMatrix + smallLast),
		},
		{
			reason: "a tied model's last stage has the matrix again", format: bf16(), tp: 1, pp: 2,
			change: func(s *model.Shape) { s.Tied = true },
			want:   2 * (2*smallLayer + smallMatrix + smallLast),
		},
		{
			reason: "the layer that two stages leave over goes to the first", format: bf16(), tp: 1, pp: 2,
			change: func(s *model.Shape) { s.Layers = 5 },
			want:   2 * (3*smallLayer + smallMatrix),
		},
		{
			reason: "the layer that three stages leave over goes to the middle", format: bf16(), tp: 1, pp: 3,
			want: 2 * 2 * smallLayer,
		},
		{
			reason: "more stages than layers", format: bf16(), tp: 1, pp: 9,
			want: 2 * smallLayer,
		},
		{
			reason: "embeddings and norms are not quantised", format: linears(), tp: 1, pp: 1,
			want: 4*(smallSplit+smallKV) + 2*(4*smallNorms+2*smallMatrix+smallLast),
		},
		{
			reason: "stated bytes count; what is not quantised keeps its size", format: linears(), stated: 200_000, tp: 2, pp: 1,
			want: (200_000-2*(4*smallNorms+2*smallMatrix+smallLast))/2 + 2*(4*smallNorms+smallMatrix+smallLast),
		},
		{
			reason: "bytes that the format cannot have are spread alike", format: linears(), stated: 1_000_000, tp: 1, pp: 1,
			want: 1_000_000,
		},
		{
			reason: "a tied model's checkpoint that holds the matrix twice", format: bf16(), tp: 1, pp: 1,
			change: func(s *model.Shape) { s.Tied = true }, stated: 2 * (4*smallLayer + 2*smallMatrix + smallLast),
			want: 2 * (4*smallLayer + smallMatrix + smallLast),
		},
		{
			reason: "padded experts; the dense layer at the beginning is on the first stage", format: experts(), tp: 1, pp: 1,
			change: mixture,
			want:   2*smallLayer + 3*(0.5*1.5*8*3*64*32+2*(mixtureLayer-8*3*64*32)) + 2*(2*smallMatrix+smallLast),
		},
		{
			reason: "the last stage has mixtures only", format: bf16(), tp: 1, pp: 2, change: mixture,
			want: 2 * (2*mixtureLayer + smallMatrix + smallLast),
		},
		{
			reason: "a router is on every GPU, an expert is cut", format: bf16(), tp: 8, pp: 1, change: mixture,
			want: 2 * (smallSplit/8 + smallKV/2 + smallNorms +
				3*(8192/8+smallKV/2+smallNorms+64*8+8*3*64*32/8) + 2*smallMatrix/8 + smallLast),
		},
		{
			reason: "layers of two widths alternate: a stage of two has one of each", format: bf16(), tp: 1, pp: 2,
			change: func(s *model.Shape) {
				s.Pattern = []model.LayerGroup{
					{Count: 2, Mixer: model.MixerFull}, {Count: 2, Mixer: model.MixerFull, FeedForward: model.FeedForwardNone},
				}
			},
			want: 2 * (smallLayer + 8192 + 2048 + 64 + smallMatrix + smallLast),
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m := physics.NewModel(small(tc.change), physics.Weights{Format: tc.format, Bytes: tc.stated})
			if got := m.WeightBytes(physics.Layout{TP: tc.tp, PP: tc.pp}); math.Abs(got-tc.want) > 1e-6*tc.want {
				t.Errorf("WeightBytes = %.1f, want %.1f", got, tc.want)
			}
		})
	}
}

// The down-projections of latent attention are whole on every GPU, and quantised.
func TestLatentProjectionsAreReplicatedAndQuantised(t *testing.T) {
	shape := small(func(s *model.Shape) {
		s.MLA = &model.MLA{KVRank: 16, RopeDim: 8, QRank: 32, NopeDim: 8, ValueDim: 8}
	})
	m := physics.NewModel(shape, physics.Weights{Format: linears()})
	const (
		projections = 64 * (16 + 8 + 32)
		norms       = 128 + 16 + 32
		attention   = 32*8*16 + 16*8*16 + 8*8*64
	)
	want := float64(4*((attention+24576)/2+projections+2*norms) + 2*(smallMatrix+smallLast))
	if got := m.WeightBytes(physics.Layout{TP: 2, PP: 1}); got != want {
		t.Errorf("WeightBytes = %.0f, want %.0f", got, want)
	}
}

func TestKVBytesPerToken(t *testing.T) {
	latent := func(s *model.Shape) {
		s.MLA = &model.MLA{KVRank: 512, RopeDim: 64, NopeDim: 8, ValueDim: 8}
	}
	sparse := func(s *model.Shape) {
		latent(s)
		s.MLA.IndexHeads, s.MLA.IndexDim = 4, 128
	}
	for _, tc := range []struct {
		reason string
		change func(*model.Shape)
		kvType string
		tp, pp int
		want   float64
	}{
		{reason: "keys and values of all heads", tp: 1, pp: 1, want: 4 * 2 * 2 * 8 * 2},
		{reason: "auto is the model's own", kvType: "auto", tp: 1, pp: 1, want: 4 * 2 * 2 * 8 * 2},
		{reason: "heads are split", tp: 2, pp: 1, want: 4 * 1 * 2 * 8 * 2},
		{reason: "more GPUs than heads: one each", tp: 8, pp: 1, want: 4 * 1 * 2 * 8 * 2},
		{reason: "a stage has its layers' only", tp: 1, pp: 2, want: 2 * 2 * 2 * 8 * 2},
		{reason: "8 bits", kvType: "fp8_e4m3", tp: 1, pp: 1, want: 4 * 2 * 2 * 8},
		{reason: "8 bits with a scale for each key and value", kvType: "int8_per_token_head", tp: 1, pp: 1, want: 4 * 2 * (2*8 + 2*4)},
		{reason: "4 bits with scales", kvType: "nvfp4", tp: 1, pp: 1, want: 4 * 2 * 2 * 8 * 0.5625},
		{reason: "an unknown type is taken for 16 bits", kvType: "unheard-of", tp: 1, pp: 1, want: 4 * 2 * 2 * 8 * 2},
		{reason: "values narrower than keys", change: func(s *model.Shape) { s.ValueDim = 4 }, tp: 1, pp: 1, want: 4 * 2 * (8 + 4) * 2},
		{reason: "latent vectors are not split", change: latent, tp: 8, pp: 1, want: 4 * 576 * 2},
		{reason: "latent vectors of 8 bits", change: latent, kvType: "fp8", tp: 8, pp: 1, want: 4 * 576},
		{reason: "sparse attention keeps an index beside", change: sparse, tp: 8, pp: 1, want: 4 * (576*2 + 132)},
		{reason: "sparse attention has an 8-bit format of its own", change: sparse, kvType: "fp8", tp: 8, pp: 1, want: 4 * (656 + 132)},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m := physics.NewModel(small(tc.change), physics.Weights{Format: bf16()})
			if got := m.KVBytesPerToken(physics.Layout{TP: tc.tp, PP: tc.pp}, tc.kvType); got != tc.want {
				t.Errorf("KVBytesPerToken = %v, want %v", got, tc.want)
			}
		})
	}
}

// law returns an engine with round figures: 1 GiB for each million rows of the vocabulary, and no graphs before release
// 2.
func law() *catalog.Engine {
	return &catalog.Engine{Version: "2.1", Split: catalog.SplitTensor, Profile: catalog.MemoryProfile{
		Basis: v1beta1.BasisMeasured, SpareGiB: 1, MostUsed: 0.95, DefaultUsed: 0.5, SamplerCopies: 4, FixedGiB: 0.25,
		ForwardCopies: 2, LatentTokens: 1 << 20, WeightFactor: 1,
		NonTorchGiB: catalog.NonTorch{Single: 1, PCIe: 2, Pair: 3, Group: 4},
		Graphs:      []catalog.GraphStep{{States: true, GiB: 5}, {ParamsB: 1, GiB: 6}, {GiB: 7}},
		GraphsSince: "2", BlockTokens: 16, Defaults: []catalog.BatchDefault{{Sequences: 64, BatchTokens: 128}},
	}}
}

func TestOverheads(t *testing.T) {
	type overheads struct{ Activation, NonTorch, Graphs float64 }
	const rows = 1 << 10
	// The logits of a row take 4 copies of 2^26 entries of 4 bytes: 1 GiB.
	wide := func(s *model.Shape) { s.Vocab = 1 << 26 }
	plain := physics.Serving{MaxModelLen: 16, MaxNumSeqs: 1, MaxBatchedTokens: 1}
	for _, tc := range []struct {
		reason  string
		change  func(*model.Shape)
		layout  physics.Layout
		serving func(*physics.Serving)
		want    overheads
	}{
		{reason: "one GPU", want: overheads{0.25, 1, 6}, change: nil},
		{reason: "a row of logits", change: wide, want: overheads{1.25, 1, 7}},
		{
			reason: "no more rows are sampled than tokens are computed", change: wide, want: overheads{2.25, 1, 7},
			serving: func(s *physics.Serving) { s.MaxNumSeqs, s.MaxBatchedTokens = rows, 2 },
		},
		{
			reason: "a batch in the widest layer: both halves of the MLP and their product, and two copies of the hidden states",
			change: func(s *model.Shape) { s.Intermediate = 1 << 18 }, want: overheads{float64(1<<10*2*(3<<18+2*64)) / gib, 1, 6},
			serving: func(s *physics.Serving) { s.MaxBatchedTokens = 1 << 10 },
		},
		{
			reason: "a wide MLP is cut", layout: physics.Layout{TP: 4, PP: 1},
			change: func(s *model.Shape) { s.Intermediate = 1 << 18 }, want: overheads{float64(1<<10*2*(3<<16+2*64)) / gib, 2, 6},
			serving: func(s *physics.Serving) { s.MaxBatchedTokens = 1 << 10 },
		},
		{
			reason: "the widest layer of experts", want: overheads{float64(1<<15*2*(2*64+8*(2<<10+1<<10))) / gib, 1, 6},
			change: func(s *model.Shape) { s.MoE = &model.MoE{Experts: 8, TopK: 8, Intermediate: 1 << 10} },
			serving: func(s *physics.Serving) {
				s.MaxBatchedTokens = 1 << 15
			},
		},
		{
			reason: "latent attention expands earlier context, up to a limit", layout: physics.Layout{TP: 2, PP: 1},
			change:  func(s *model.Shape) { s.MLA = &model.MLA{KVRank: 16, RopeDim: 8, NopeDim: 56, ValueDim: 8} },
			serving: func(s *physics.Serving) { s.MaxModelLen = 1 << 20 },
			want:    overheads{float64(1<<20*4*64*2) / gib, 2, 6},
		},
		{
			reason: "of eight sequences where they are shorter", layout: physics.Layout{TP: 2, PP: 1},
			change:  func(s *model.Shape) { s.MLA = &model.MLA{KVRank: 16, RopeDim: 8, NopeDim: 56, ValueDim: 8} },
			serving: func(s *physics.Serving) { s.MaxModelLen = 3 << 15 },
			want:    overheads{float64(8*3<<15*4*64*2) / gib, 2, 6},
		},
		{reason: "two GPUs with a link", layout: physics.Layout{TP: 2, PP: 1, LinkedGPUs: 2}, want: overheads{0.25, 3, 6}},
		{reason: "four GPUs with a link", layout: physics.Layout{TP: 4, PP: 1, LinkedGPUs: 8}, want: overheads{0.25, 4, 6}},
		{reason: "eight: each doubling adds as much", layout: physics.Layout{TP: 8, PP: 1, LinkedGPUs: 8}, want: overheads{0.25, 5, 6}},
		{reason: "four GPUs, pairs of which have a link", layout: physics.Layout{TP: 4, PP: 1, LinkedGPUs: 2}, want: overheads{0.25, 2, 6}},
		{reason: "stages of one GPU sum nothing, and capture graphs of half the layers", layout: physics.Layout{TP: 1, PP: 2}, want: overheads{0.25, 1, 3}},
		{
			reason: "no graphs", want: overheads{0.25, 1, 0},
			serving: func(s *physics.Serving) { s.Eager = true },
		},
		{
			reason: "a release that takes graphs out of what it leaves free", want: overheads{0.25, 1, 0},
			serving: func(s *physics.Serving) { s.Version = "1.99.3" },
		},
		{
			reason: "the release that began to count them", want: overheads{0.25, 1, 6},
			serving: func(s *physics.Serving) { s.Version = "v2.0" },
		},
		{
			reason: "layers that keep states", want: overheads{0.25, 1, 5},
			change: func(s *model.Shape) {
				s.Pattern = []model.LayerGroup{
					{Count: 3, Mixer: model.MixerDeltaNet, State: &model.State{Conv: 4, KeyHeads: 2, ValueHeads: 2, KeyDim: 8, ValueDim: 8}},
					{Count: 1, Mixer: model.MixerFull},
				}
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m := physics.NewModel(small(tc.change), physics.Weights{Format: bf16(), Basis: v1beta1.BasisExact})
			layout, serving := tc.layout, plain
			layout.TP, layout.PP = max(layout.TP, 1), max(layout.PP, 1)
			if tc.serving != nil {
				tc.serving(&serving)
			}
			serving.Utilization = 0.9
			b := physics.Memory(m, &sku.GPU{MemoryGiB: 100}, layout, &serving, law())
			rounded := func(gibs float64) float64 { return math.Round(gibs*1e4) / 1e4 }
			tc.want.Activation = rounded(tc.want.Activation)
			if diff := cmp.Diff(tc.want, overheads{rounded(b.Activation), b.NonTorch, b.Graphs}); diff != "" {
				t.Errorf("overheads (-want +got):\n%s", diff)
			}
			if sum := b.Weights + b.Activation + b.NonTorch + b.Graphs + b.KVCache; math.Abs(sum-90) > 1e-9 {
				t.Errorf("the parts sum to %v GiB, not to the share of 90", sum)
			}
		})
	}
}

// The engine's memory depends on its release, and partly on the format and the kind of model.
func TestOverheadsOfReleases(t *testing.T) {
	e := law()
	e.Version = "4"
	e.Profile.BatchCopies = 1
	e.Profile.Workspace = &catalog.Workspace{Except: []string{"mxfp4"}}
	e.Profile.Graphs = append([]catalog.GraphStep{{Experts: true, Formats: []string{"fp8"}, GiB: 8}}, e.Profile.Graphs...)
	e.Profile.Former = []catalog.FormerProfile{
		{Until: "3", NonTorchGiB: &catalog.NonTorch{Single: 0.5}}, {Until: "2", SamplerCopies: 8, NoWorkspace: true},
	}
	mixture := func(s *model.Shape) { s.MoE = &model.MoE{Experts: 8, TopK: 8, Intermediate: 1 << 10} }
	const tokens = 1 << 15
	workspace := float64(tokens*2*8*(2<<10+1<<10)) / gib
	hidden := float64(tokens*2*64) / gib
	for _, tc := range []struct {
		reason, version string
		change          func(*model.Shape)
		format          model.Quantization
		want            [3]float64 // activation, libraries, graphs
	}{
		{"the catalogue's release: logits, one copy of the batch", "", nil, bf16(), [3]float64{1 + hidden + 0.25, 1, 7}},
		{"the same, named", "v4.1", nil, bf16(), [3]float64{1 + hidden + 0.25, 1, 7}},
		{"a former release has other libraries", "2.5", nil, bf16(), [3]float64{1 + hidden + 0.25, 0.5, 7}},
		{"an older one has them too, and another sampler", "1.9", nil, bf16(), [3]float64{2 + hidden + 0.25, 0.5, 0}},
		{"a mixture's workspace comes on top of the logits", "", mixture, bf16(), [3]float64{1 + hidden + 0.25 + workspace, 1, 7}},
		{"but not in formats whose kernels have none", "", mixture, experts(), [3]float64{1 + hidden + 0.25, 1, 7}},
		{"nor in a release that had none, where the experts are the widest layer", "1.9", mixture, bf16(), [3]float64{2 + hidden + 0.25, 0.5, 0}},
		{"graphs of mixtures in a format", "", mixture, linears(), [3]float64{1 + hidden + 0.25 + workspace, 1, 8}},
		{"but not of others in that format", "", nil, linears(), [3]float64{1 + hidden + 0.25, 1, 7}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			shape := small(tc.change)
			shape.Vocab = 1 << 26
			m := physics.NewModel(shape, physics.Weights{Format: tc.format})
			serving := physics.Serving{MaxModelLen: 16, MaxNumSeqs: 1, MaxBatchedTokens: tokens, Version: tc.version}
			b := physics.Memory(m, &sku.GPU{MemoryGiB: 100}, physics.Layout{TP: 1, PP: 1}, &serving, e)
			rounded := func(gibs float64) float64 { return math.Round(gibs*1e4) / 1e4 }
			got := [3]float64{rounded(b.Activation), b.NonTorch, b.Graphs}
			tc.want[0] = rounded(tc.want[0])
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("activation, libraries and graphs (-want +got):\n%s", diff)
			}
		})
	}
}

// GPUs hold the up-projections of latent attention twice: once for prompts, once for decoding.
func TestLatentAttentionHoldsItsUpProjectionsTwice(t *testing.T) {
	shape := small(func(s *model.Shape) { s.MLA = &model.MLA{KVRank: 16, RopeDim: 8, NopeDim: 8, ValueDim: 8} })
	m := physics.NewModel(shape, physics.Weights{Format: bf16()})
	layout := physics.Layout{TP: 2, PP: 1}
	b := physics.Memory(m, &sku.GPU{MemoryGiB: 1}, layout, &physics.Serving{MaxModelLen: 16}, law())
	const twice = 4 * 4 * 16 * (8 + 8) * 2 // layers, heads per GPU, rank, dimensions, bytes
	if got := b.Weights*gib - m.WeightBytes(layout); math.Abs(got-twice) > 1 {
		t.Errorf("%.0f bytes more than the checkpoint's, want %d", got, twice)
	}
}

// The law was measured on text models without states. Figures for others are estimates.
func TestBasis(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		change  func(*model.Shape)
		weights v1beta1.Basis
		want    v1beta1.Basis
	}{
		{"exact weights: the law's", nil, v1beta1.BasisExact, v1beta1.BasisMeasured},
		{"estimated weights", nil, v1beta1.BasisEstimated, v1beta1.BasisEstimated},
		{"a vision tower", func(s *model.Shape) { s.ExtraParams = 1 }, v1beta1.BasisExact, v1beta1.BasisEstimated},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			m := physics.NewModel(small(tc.change), physics.Weights{Format: bf16(), Basis: tc.weights})
			b := physics.Memory(m, &sku.GPU{MemoryGiB: 1}, physics.Layout{TP: 1, PP: 1}, &physics.Serving{MaxModelLen: 16}, law())
			if b.Basis != tc.want {
				t.Errorf("basis = %q, want %q", b.Basis, tc.want)
			}
		})
	}
}

// Unset settings take the engine's defaults.
func TestDefaultsOfTheEngine(t *testing.T) {
	m := physics.NewModel(small(nil), physics.Weights{Format: bf16(), Basis: v1beta1.BasisEstimated})
	gpu := sku.GPU{MemoryGiB: 100}
	layout := physics.Layout{TP: 1, PP: 1}
	got := physics.Memory(m, &gpu, layout, &physics.Serving{MaxModelLen: 16}, law())
	want := physics.Memory(m, &gpu, layout,
		&physics.Serving{MaxModelLen: 16, MaxNumSeqs: 64, MaxBatchedTokens: 128, Utilization: 0.5}, law())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("budget (-want +got):\n%s", diff)
	}
	if got.Basis != v1beta1.BasisEstimated {
		t.Errorf("basis = %q, want that of the weights", got.Basis)
	}
}

// The stage with the fewest blocks decides. It is the last one, because it samples.
func TestTheFullestStageDecides(t *testing.T) {
	m := physics.NewModel(small(func(s *model.Shape) { s.Vocab = 1 << 26 }), physics.Weights{Format: bf16()})
	b := physics.Memory(m, &sku.GPU{MemoryGiB: 100}, physics.Layout{TP: 1, PP: 2},
		&physics.Serving{MaxModelLen: 16, MaxNumSeqs: 1, MaxBatchedTokens: 1}, law())
	if math.Abs(b.Activation-1.25) > 1e-9 {
		t.Errorf("activation = %v GiB, want the 1.25 of the stage that samples", b.Activation)
	}
}

func TestLayerSplit(t *testing.T) {
	law := catalog.EngineMemory{
		Basis: v1beta1.BasisMeasured, ReserveGiB: 1, BatchTokens: 512, LogitBytes: 4, HiddenBytes: 32, MaskBytes: 6,
		InputCopies: 4, KVBytes: 2, ContextMultiple: 256,
	}
	shape := model.Shape{Layers: 15, Hidden: 1024, Intermediate: 1024, Heads: 8, KVHeads: 8, HeadDim: 128, Vocab: 1024}
	const matrix = 1024 * 1024 * 2
	weights := physics.Weights{Format: bf16(), Bytes: 16 * gib, Basis: v1beta1.BasisExact}
	quantised := weights
	quantised.Format.BytesPerParam = 0.6
	buffers := func(tokens, copies int, last bool) float64 {
		bytes := gib + 512*1024*32 + 512*tokens*6*copies
		if last {
			bytes += 512 * 1024 * 4
		}
		return float64(bytes)
	}
	params := float64(shape.Params())
	for _, tc := range []struct {
		reason                  string
		weights                 physics.Weights
		gpus, length, sequences int
		want                    [3]float64 // bytes of weights, KV cache and the rest
	}{
		{
			"one GPU; the embedding stays on the host", weights, 1, 8192, 4,
			[3]float64{16*gib - matrix, 15 * 4096 * 8192 * 4, buffers(4*8192, 1, true)},
		},
		{
			"a length is rounded up", weights, 1, 8100, 1,
			[3]float64{16*gib - matrix, 15 * 4096 * 8192, buffers(8192, 1, true)},
		},
		{
			"two GPUs: eight layers on the first, seven and the output on the last", weights, 2, 8192, 4,
			[3]float64{(16*gib - 2*matrix) / 15 * 8, 8 * 4096 * 8192 * 4, buffers(4*8192, 4, false)},
		},
		{
			"where the embedding's size is not known, it counts", quantised, 1, 8192, 4,
			[3]float64{16 * gib, 15 * 4096 * 8192 * 4, buffers(4*8192, 1, true)},
		},
		{
			"without a file's size, the format's",
			physics.Weights{Format: bf16()},
			1, 8192, 4,
			[3]float64{2*params - matrix, 15 * 4096 * 8192 * 4, buffers(4*8192, 1, true)},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			b := physics.NewModel(shape, tc.weights).LayerSplit(40, tc.gpus, tc.length, tc.sequences, &law)
			got := [3]float64{b.Weights, b.KVCache, b.Activation + b.NonTorch}
			for i, bytes := range tc.want {
				if want := math.Ceil(bytes/gib*1000) / 1000; math.Abs(got[i]-want) > 1e-9 {
					t.Errorf("part %d = %v GiB, want %v", i, got[i], want)
				}
			}
			if b.Total != 40 || b.MaxConcurrency != float64(tc.sequences) {
				t.Errorf("budget = %+v, want 40 GiB in total and %d sequences", b, tc.sequences)
			}
		})
	}
}

func TestSettledShareOfEarlierReleases(t *testing.T) {
	engine := catalog.Engine{Version: "0.30", Profile: catalog.MemoryProfile{DefaultUsed: 0.92, FormerUsed: 0.9, UsedSince: "0.22"}}
	for _, tc := range []struct {
		reason  string
		serving physics.Serving
		want    float64
	}{
		{reason: "the catalogue's release", want: 0.92},
		{reason: "a release before the change", serving: physics.Serving{Version: "v0.21.3"}, want: 0.9},
		{reason: "the release that changed it", serving: physics.Serving{Version: "0.22"}, want: 0.92},
		{reason: "a share that is given", serving: physics.Serving{Version: "0.9", Utilization: 0.5}, want: 0.5},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := tc.serving.Settled(nil, &engine).Utilization; got != tc.want {
				t.Errorf("share %v, want %v", got, tc.want)
			}
		})
	}
}

func TestBudgetOfNewerReleasesIsEstimated(t *testing.T) {
	s := newShelf(t)
	engine := s.vllm(t)
	m, known := s.find("meta-llama/Llama-3.1-8B-Instruct")
	if !known {
		t.Fatal("the model is missing")
	}
	gpu := sku.GPU{Class: "H100-80", MemoryGiB: 79.19}
	for _, tc := range []struct {
		reason, version, until string
		want                   v1beta1.Basis
	}{
		{"a release that calibrated the law", "0.19.0", engine.Profile.MeasuredUntil, v1beta1.BasisMeasured},
		{"the first release without logs", engine.Profile.MeasuredUntil, engine.Profile.MeasuredUntil, v1beta1.BasisEstimated},
		{"the catalogue's release", "", engine.Profile.MeasuredUntil, v1beta1.BasisEstimated},
		{"a release without a number is the newest", "nightly", engine.Profile.MeasuredUntil, v1beta1.BasisEstimated},
		{"nobody says that newer releases differ", "", "", v1beta1.BasisMeasured},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			e := engine.Clone()
			e.Profile.MeasuredUntil = tc.until
			layout, serving := physics.Layout{TP: 1, PP: 1, DP: 1, Nodes: 1}, physics.Serving{MaxModelLen: 8192, Version: tc.version}
			if got := physics.Memory(s.model(t, m), &gpu, layout, &serving, &e).Basis; got != tc.want {
				t.Errorf("basis %s, want %s", got, tc.want)
			}
		})
	}
}
