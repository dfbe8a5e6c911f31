// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// The profile run encodes as many of the largest images as a batch holds.
func TestEncodersOfImages(t *testing.T) {
	e := law()
	e.Profile.Encoder = catalog.EncoderProfile{WeightsGiB: 0.5, KeptGiB: 0.25, UnknownGiB: 3}
	known := &model.Vision{Hidden: 1 << 10, Intermediate: 1 << 12, Patches: 1 << 16, Tokens: 1 << 14}
	const kept = float64(1<<14*64*2)/gib + 0.25
	const peak = float64(1<<16*2*(2<<12+2<<10)) / gib
	type overhead struct{ Weights, Activation float64 }
	for _, tc := range []struct {
		reason string
		vision *model.Vision
		layout physics.Layout
		media  physics.Media
		tokens int
		want   overhead
	}{
		{"the largest image, and what it becomes", known, physics.Layout{TP: 1}, physics.Media{}, 1, overhead{0.5, peak + kept}},
		{"a batch holds two of them", known, physics.Layout{TP: 1}, physics.Media{}, 1 << 15, overhead{0.5, 2*peak + 2*kept - 0.25}},
		{"MLPs are cut", known, physics.Layout{TP: 4}, physics.Media{}, 1, overhead{0.5, float64(1<<16*2*(2<<10+2<<10))/gib + kept}},
		{"an encoder that is not known", nil, physics.Layout{TP: 1}, physics.Media{}, 1, overhead{0.5, 3.25}},
		{"no images are read", known, physics.Layout{TP: 1}, physics.Media{TextOnly: true}, 1, overhead{0, 0.25}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			shape := small(nil)
			plain := physics.NewModel(shape, physics.Weights{Format: bf16()})
			shape.ExtraParams, shape.Vision = 1, tc.vision
			m := physics.NewModel(shape, physics.Weights{Format: bf16()})
			layout := tc.layout
			layout.PP = 1
			serving := physics.Serving{MaxModelLen: 16, MaxNumSeqs: 2, MaxBatchedTokens: tc.tokens, Media: tc.media}
			b := physics.Memory(m, &sku.GPU{MemoryGiB: 100}, layout, &serving, e)
			rounded := func(gibs float64) float64 { return math.Round(gibs*1e4) / 1e4 }
			got := overhead{rounded(b.Weights - plain.WeightBytes(layout)/gib), rounded(b.Activation)}
			tc.want.Activation = rounded(tc.want.Activation)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("beside the language model (-want +got):\n%s", diff)
			}
		})
	}
}

// The profile run encodes images or videos, whichever has more tokens in its largest item, within the user's limits.
func TestLimitsOfMedia(t *testing.T) {
	e := law()
	e.Profile.Encoder = catalog.EncoderProfile{}
	// An image is 2^10 patches and 2^8 tokens. Each patch takes width bytes.
	image := model.Vision{Hidden: 64, Intermediate: 64, Patches: 1 << 10, Tokens: 1 << 8, PatchPixels: 16}
	short, long, square := image, image, image
	short.VideoTokens, short.VideoPairs = 1<<7, 1
	long.VideoTokens, long.VideoPairs = 1<<8, 7
	square.PatchPixels = 0
	const width, result = 2 * (2*64 + 2*64), 64 * 2
	type bytes struct{ patches, tokens float64 }
	for _, tc := range []struct {
		reason  string
		vision  model.Vision
		media   physics.Media
		context int
		seqs    int
		batch   int
		want    bytes
	}{
		{"one image", image, physics.Media{}, 1 << 14, 256, 1, bytes{1 << 10, 1 << 8}},
		{"numbers save nothing with many sequences", image, physics.Media{Images: 1}, 1 << 14, 256, 1 << 10, bytes{4 << 10, 4 << 8}},
		{"two sequences with an image each", image, physics.Media{Images: 1}, 1 << 14, 2, 1 << 10, bytes{2 << 10, 4 << 8}},
		{"a context for one image", image, physics.Media{}, 300, 2, 1 << 10, bytes{2 << 10, 4 << 8}},
		{"a short video is less than an image", short, physics.Media{}, 1 << 14, 256, 1, bytes{1 << 10, 1 << 8}},
		{"a short video alone", short, physics.Media{NoImages: true}, 1 << 14, 256, 1, bytes{1 << 9, 1 << 7}},
		{"a long video takes as much as the context holds", long, physics.Media{}, 1 << 10, 256, 1, bytes{4 << 10, 4 << 8}},
		{"at most its pairs of frames", long, physics.Media{}, 1 << 14, 256, 1, bytes{7 << 10, 7 << 8}},
		{"no videos", long, physics.Media{NoVideos: true}, 1 << 14, 256, 1, bytes{1 << 10, 1 << 8}},
		{"small images keep the room", image, physics.Media{Width: 128, Height: 250}, 1 << 14, 256, 1, bytes{8 * 16, 1 << 8}},
		{"larger ones than the largest are cut", image, physics.Media{Width: 1 << 16, Height: 1 << 16}, 1 << 14, 256, 1, bytes{1 << 10, 1 << 8}},
		{"a size for images changes no video", long, physics.Media{Width: 64, Height: 64}, 1 << 8, 256, 1, bytes{1 << 10, 1 << 8}},
		{"images that are scaled to one size", square, physics.Media{Width: 64, Height: 64}, 1 << 14, 256, 1, bytes{1 << 10, 1 << 8}},
		{"a model without videos, and no images", image, physics.Media{NoImages: true}, 1 << 14, 256, 1, bytes{}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			shape := small(nil)
			shape.ExtraParams = 1
			serving := physics.Serving{MaxModelLen: tc.context, MaxNumSeqs: tc.seqs, MaxBatchedTokens: tc.batch, Media: tc.media}
			activation := func(v *model.Vision, s physics.Serving) float64 {
				shape.Vision = v
				m := physics.NewModel(shape, physics.Weights{Format: bf16()})
				return physics.Memory(m, &sku.GPU{MemoryGiB: 100}, physics.Layout{TP: 1, PP: 1}, &s, e).Activation
			}
			without := serving
			without.Media = physics.Media{TextOnly: true}
			language := activation(nil, without)
			got := activation(&tc.vision, serving)
			want := max(tc.want.patches*width/gib, language) + tc.want.tokens*result/gib
			if math.Abs(got-want)*gib > 1 {
				t.Errorf("activation of %.0f bytes, want %.0f (%.0f without media)", got*gib, want*gib, language*gib)
			}
		})
	}
}
