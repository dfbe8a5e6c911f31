// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// validateModel checks one model.
func validateModel(m model.Model) error {
	var c check
	c.text("hubId", m.HubID, isRepo, "must be a hub id such as org/Model")
	if want := baseName(m.HubID); m.Name != want {
		c.fail("name", fmt.Sprintf("%q", m.Name), fmt.Sprintf("must be the lower-case basename of hubId, %q", want))
	}
	for i, alias := range m.Aliases {
		c.text(fmt.Sprintf("aliases[%d]", i), alias, isLowerName, "must be a lower-case name")
	}
	switch {
	case len(m.Artifacts) == 0 && m.Needs == "":
		c.fail("artifacts", "[]", "must have an entry, unless needs names the engine that the model waits for")
	case len(m.Artifacts) > 0 && m.Needs != "":
		c.fail("needs", fmt.Sprintf("%q", m.Needs), "must not be set for a model with artifacts")
	case m.Needs != "":
		c.text("needs", m.Needs, isLowerName, "must be an engine's name")
	}
	for _, parser := range []struct{ field, name string }{
		{"toolParser", m.ToolParser}, {"reasoningParser", m.ReasoningParser},
	} {
		if parser.name != "" {
			c.text(parser.field, parser.name, isLowerName, "must be a parser's name such as hermes")
		}
	}
	if m.Float16 != "" {
		c.oneOf("float16", string(m.Float16), string(model.Float16Survives), string(model.Float16Breaks))
	}
	if len(m.Artifacts) > 0 || m.Context != 0 {
		c.within("context", float64(m.Context), 1, 1<<24)
	}
	if len(m.Artifacts) > 0 || !m.Shape.IsZero() {
		c.shape(m.Shape)
	}
	c.artifacts(m.Artifacts)
	return c.err
}

// baseName returns the model's name in a repository.
func baseName(repo string) string {
	return strings.ToLower(path.Base(repo))
}

// dimension is a whole number in a shape, with its bounds.
type dimension struct {
	field       string
	value       int
	least, most int
}

// The bounds of dimensions keep all products within 64 bits.
const (
	mostLayers  = 1 << 12
	mostHeads   = 1 << 12
	mostHeadDim = 1 << 12
	mostHidden  = 1 << 18
	mostWidth   = 1 << 20
	mostExperts = 1 << 13
	mostExpert  = 1 << 17
	mostVocab   = 1 << 24
	mostWindow  = 1 << 24
	mostRank    = 1 << 17
	mostExtra   = 1 << 50
)

func (c *check) dimensions(field string, all []dimension) {
	for _, d := range all {
		c.within(field+"."+d.field, float64(d.value), float64(d.least), float64(d.most))
	}
}

// shape checks a transformer's shape.
func (c *check) shape(s model.Shape) {
	c.dimensions("shape", []dimension{
		{"layers", s.Layers, 1, mostLayers},
		{"hidden", s.Hidden, 1, mostHidden},
		{"intermediate", s.Intermediate, 0, mostWidth},
		{"heads", s.Heads, 1, mostHeads},
		{"kvHeads", s.KVHeads, 1, mostHeads},
		{"headDim", s.HeadDim, 1, mostHeadDim},
		{"valueDim", s.ValueDim, 0, mostHeadDim},
		{"vocab", s.Vocab, 1, mostVocab},
		{"norms", s.Norms, 0, 16},
	})
	c.within("shape.extraParams", float64(s.ExtraParams), 0, mostExtra)
	if c.err == nil && s.Heads%s.KVHeads != 0 {
		c.fail("shape.kvHeads", s.KVHeads, fmt.Sprintf("does not divide shape.heads: %d", s.Heads))
	}
	if s.MoE != nil {
		c.experts(*s.MoE, s.Layers)
	}
	if s.MLA != nil {
		c.latent(*s.MLA, s.Heads)
	}
	if s.Vision != nil {
		c.vision(*s.Vision)
	}
	if len(s.Pattern) > 0 {
		c.pattern(s)
	}
	if c.err == nil && s.Intermediate == 0 && needsIntermediate(s) {
		c.fail("shape.intermediate", 0, "must be the width of the MLPs: some layers have one")
	}
}

// needsIntermediate reports whether a layer has a dense MLP of the model's width.
func needsIntermediate(s model.Shape) bool {
	dense := s.MoE == nil || s.MoE.DenseLayers > 0 || s.MoE.Every > 1
	if len(s.Pattern) == 0 {
		return dense
	}
	return slices.ContainsFunc(s.Pattern, func(g model.LayerGroup) bool {
		has := g.FeedForward == model.FeedForwardDense || g.FeedForward == model.FeedForwardDefault && dense
		return has && g.Intermediate == 0
	})
}

// experts checks a mixture of experts.
func (c *check) experts(m model.MoE, layers int) {
	c.dimensions("shape.moe", []dimension{
		{"experts", m.Experts, 1, mostExperts},
		{"topK", m.TopK, 1, m.Experts},
		{"intermediate", m.Intermediate, 1, mostExpert},
		{"sharedIntermediate", m.SharedIntermediate, 0, mostWidth},
		{"denseLayers", m.DenseLayers, 0, layers - 1},
		{"every", m.Every, 0, layers},
		{"latentDim", m.LatentDim, 0, mostHidden},
	})
	if m.SharedGate && m.SharedIntermediate == 0 {
		c.fail("shape.moe.sharedGate", true, "requires sharedIntermediate")
	}
}

// latent checks latent attention.
func (c *check) latent(m model.MLA, heads int) {
	c.dimensions("shape.mla", []dimension{
		{"kvRank", m.KVRank, 1, mostRank},
		{"ropeDim", m.RopeDim, 0, mostHeadDim},
		{"qRank", m.QRank, 0, mostRank},
		{"nopeDim", m.NopeDim, 0, mostHeadDim},
		{"valueDim", m.ValueDim, 1, mostHeadDim},
		{"outputRank", m.OutputRank, 0, mostRank},
		{"outputGroups", m.OutputGroups, 0, heads},
		{"indexHeads", m.IndexHeads, 0, mostHeads},
		{"indexDim", m.IndexDim, 0, mostHeadDim},
	})
	if m.NopeDim+m.RopeDim == 0 {
		c.fail("shape.mla.nopeDim", 0, "must be above 0 where ropeDim is 0")
	}
	if (m.OutputRank > 0) != (m.OutputGroups > 0) {
		c.fail("shape.mla.outputGroups", m.OutputGroups, fmt.Sprintf("is incompatible with outputRank: %d", m.OutputRank))
	}
	if (m.IndexHeads > 0) != (m.IndexDim > 0) {
		c.fail("shape.mla.indexDim", m.IndexDim, fmt.Sprintf("is incompatible with indexHeads: %d", m.IndexHeads))
	}
}

// pattern checks the groups of layers.
func (c *check) pattern(s model.Shape) {
	sum := 0
	for i, g := range s.Pattern {
		field := fmt.Sprintf("shape.pattern[%d]", i)
		c.dimensions(field, []dimension{
			{"count", g.Count, 1, s.Layers},
			{"window", g.Window, 0, mostWindow},
			{"kvHeads", g.KVHeads, 0, s.Heads},
			{"headDim", g.HeadDim, 0, mostHeadDim},
			{"intermediate", g.Intermediate, 0, mostWidth},
		})
		c.mixer(field, g, s.Heads)
		c.feedForward(field, g, s.MoE != nil)
		sum += g.Count
	}
	if c.err == nil && sum != s.Layers {
		c.fail("shape.pattern", sum, fmt.Sprintf("layers in all groups together, but shape.layers is %d", s.Layers))
	}
}

// mixer checks that a group has the fields of its mixer, and no others.
func (c *check) mixer(field string, g model.LayerGroup, heads int) {
	mixers := map[model.Mixer]struct{ attends, windowed, stateful bool }{
		model.MixerFull:     {attends: true},
		model.MixerWindow:   {attends: true, windowed: true},
		model.MixerChunk:    {attends: true, windowed: true},
		model.MixerMamba2:   {stateful: true},
		model.MixerDeltaNet: {stateful: true},
		model.MixerNone:     {},
	}
	mixer, known := mixers[g.Mixer]
	switch {
	case !known:
		c.fail(field+".mixer", fmt.Sprintf("%q", g.Mixer), "must be full, window, chunk, mamba2, deltanet or none")
	case mixer.windowed != (g.Window > 0):
		c.fail(field+".window", g.Window, fmt.Sprintf("is incompatible with mixer: %s", g.Mixer))
	case mixer.stateful && g.State == nil:
		c.fail(field+".mixer", g.Mixer, "needs the field state")
	case !mixer.stateful && g.State != nil:
		c.fail(field+".mixer", g.Mixer, "has no state: remove the field state")
	case !mixer.attends && changesAttention(g):
		c.fail(field+".mixer", fmt.Sprintf("%q", g.Mixer),
			"does not attend, so it has neither kvHeads, headDim, reusedKV, keysAreValues nor reusedIndex")
	case g.KVHeads > 0 && heads%g.KVHeads != 0:
		c.fail(field+".kvHeads", g.KVHeads, fmt.Sprintf("does not divide shape.heads: %d", heads))
	}
	if g.State != nil {
		c.dimensions(field+".state", []dimension{
			{"conv", g.State.Conv, 1, 64},
			{"keyHeads", g.State.KeyHeads, 1, mostHeads},
			{"valueHeads", g.State.ValueHeads, 1, mostHeads},
			{"keyDim", g.State.KeyDim, 1, mostHeadDim},
			{"valueDim", g.State.ValueDim, 1, mostHeadDim},
			{"bytes", g.State.Bytes, 0, 8},
		})
	}
}

// changesAttention reports whether a group's attention differs from the model's.
func changesAttention(g model.LayerGroup) bool {
	return g.KVHeads > 0 || g.HeadDim > 0 || g.ReusedKV || g.KeysAreValues || g.ReusedIndex
}

// feedForward checks the layers after the mixer in a group.
func (c *check) feedForward(field string, g model.LayerGroup, experts bool) {
	kinds := []model.FeedForward{
		model.FeedForwardDefault, model.FeedForwardDense, model.FeedForwardExperts, model.FeedForwardNone,
	}
	switch {
	case !slices.Contains(kinds, g.FeedForward):
		c.fail(field+".feedForward", fmt.Sprintf("%q", g.FeedForward), "must be dense, experts or none, or absent")
	case g.FeedForward == model.FeedForwardExperts && !experts:
		c.fail(field+".feedForward", fmt.Sprintf("%q", g.FeedForward), "needs shape.moe")
	case g.FeedForward == model.FeedForwardNone && g.Mixer == model.MixerNone:
		c.fail(field+".feedForward", fmt.Sprintf("%q", g.FeedForward), "leaves a layer empty, because its mixer is none")
	}
}

// vision checks an encoder of images.
func (c *check) vision(v model.Vision) {
	c.dimensions("shape.vision", []dimension{
		{"hidden", v.Hidden, 1, mostHidden},
		{"intermediate", v.Intermediate, 1, mostWidth},
		{"patches", v.Patches, 1, 1 << 22},
		{"tokens", v.Tokens, 1, 1 << 20},
		{"patchPixels", v.PatchPixels, 0, 1 << 10},
		{"videoTokens", v.VideoTokens, 0, 1 << 20},
		{"videoPairs", v.VideoPairs, 0, 1 << 10},
		{"taps", v.Taps, 0, mostLayers},
	})
	if (v.VideoTokens == 0) != (v.VideoPairs == 0) {
		c.fail("shape.vision.videoPairs", v.VideoPairs, "must be set if and only if videoTokens is")
	}
}
