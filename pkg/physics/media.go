// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"math"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
)

// Media limits the images and videos that an engine accepts. The zero value is the engine's default: any number and
// size.
type Media struct {
	// TextOnly: the engine accepts only text, and loads no encoder.
	TextOnly bool
	// NoImages and NoVideos turn off images or videos.
	NoImages, NoVideos bool
	// Images is the largest number of images in a prompt; 0 means any number.
	Images int
	// Width and Height of the profile run's images in pixels; 0 means the largest.
	Width, Height int
}

// leavesText reports whether only text is left for a model with an encoder; v is nil if the encoder is unknown.
func (m Media) leavesText(v *model.Vision) bool {
	return m.TextOnly || m.NoImages && (m.NoVideos || v != nil && v.VideoTokens == 0)
}

// images is the memory of a vision encoder on each GPU of the first stage, in GiB. weights are in addition to the
// checkpoint's. peak is the memory for the profile run. kept is the memory of the run's result, until the engine ends.
type images struct{ weights, peak, kept float64 }

// images returns the memory of the encoder. The profile run encodes images of the largest size, as many as fit into one
// batch and at least one.
func (m *Model) images(l *Layout, s *Serving, law *catalog.MemoryProfile) images {
	v := m.shape.Vision
	switch {
	case m.shape.ExtraParams == 0 || s.Media.leavesText(v):
		return images{}
	case v == nil:
		return images{law.Encoder.WeightsGiB, law.Encoder.UnknownGiB, law.Encoder.KeptGiB}
	}
	batch := profileRun(v, s)
	halves := 1.0
	if v.Gated {
		halves = 2
	}
	width := (halves+1)*float64(v.Intermediate)/float64(max(l.TP, 1)) + law.ForwardCopies*float64(v.Hidden)
	kept := float64(batch.tokens) * float64(m.shape.Hidden) * float64(1+v.Taps) * plainBytes
	return images{
		weights: law.Encoder.WeightsGiB,
		peak:    float64(batch.patches) * width * plainBytes / gib,
		kept:    kept/gib + law.Encoder.KeptGiB,
	}
}

// encoded is the number of patches in the profile run, and of tokens that the engine reserves for their result.
type encoded struct{ patches, tokens int }

// profileRun returns the content of the profile run. It takes images or videos, whichever has more tokens in its
// largest item, and as many items as a batch holds (MultiModalBudget in vllm/multimodal/encoder_budget.py). The numbers
// in limit-mm-per-prompt therefore save memory only with few sequences (vLLM issue 38459 and pull request 41239). The
// sizes in this flag change the encoded content, but neither the kind nor the number of tokens
// (docs/configuration/conserving_memory.md).
func profileRun(v *model.Vision, s *Serving) encoded {
	image, video := v.Tokens, longestVideo(v, s.MaxModelLen)
	if s.Media.NoImages {
		image = 0
	}
	if s.Media.NoVideos {
		video = 0
	}
	tokens := max(image, video)
	room := max(s.MaxBatchedTokens, tokens)
	count, patches := room/tokens, tokens*v.Patches/v.Tokens
	if image > video {
		most := max(s.MaxModelLen/tokens, 1)
		if s.Media.Images > 0 {
			most = min(most, s.Media.Images)
		}
		count, patches = min(count, max(s.MaxNumSeqs, 1)*most), min(v.Patches, sized(v, s.Media))
	}
	return encoded{patches: count * patches, tokens: room}
}

// sized returns the patches of an image of the profile run's size. Several patches make one token, and tokens are
// whole.
func sized(v *model.Vision, m Media) int {
	if v.PatchPixels == 0 || min(m.Width, m.Height) == 0 {
		return v.Patches
	}
	joined := int(math.Round(math.Sqrt(float64(v.Patches) / float64(v.Tokens))))
	side := v.PatchPixels * max(joined, 1)
	return ceilDiv(m.Width, side) * ceilDiv(m.Height, side) * joined * joined
}

// longestVideo returns the tokens of the profile run's video. It has as many pairs of frames as the context holds.
func longestVideo(v *model.Vision, context int) int {
	if v.VideoTokens == 0 {
		return 0
	}
	return v.VideoTokens * min(max(context/v.VideoTokens, 1), v.VideoPairs)
}
