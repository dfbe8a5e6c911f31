// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"strconv"

	"github.com/modelberth/modelberth/pkg/model"
)

// positions says which positions of patches are learned.
type positions string

const (
	positionsImage positions = "image"
	positionsKey   positions = "key"
)

// projector is the part that connects the encoder's output with the language model.
type projector string

const (
	// projectorPooled is a norm and a matrix.
	projectorPooled projector = "pooled"
	// projectorMerged joins neighbouring patches with a matrix, and has two more matrices.
	projectorMerged projector = "merged"
	// projectorShuffled makes one wide patch of neighbouring patches, and has three matrices.
	projectorShuffled projector = "shuffled"
	// projectorMLP joins neighbouring patches and is an MLP, with one more MLP for each tapped layer.
	projectorMLP projector = "mlp"
)

// vision counts the parameters of a vision encoder and its projector, and describes the encoder. It returns 0 if there
// is none, or if the encoder is unknown; a note then says so.
func (p *parser) vision(known table, top object, text int) (int64, *model.Vision) {
	if !isNull(top["audio_config"]) {
		p.note("the audio encoder is not counted")
	}
	config := top.sub("vision_config")
	if len(config) == 0 || p.err != nil {
		return 0, nil
	}
	kind := config.text("model_type")
	t, ok := known.tower(kind, top.text("model_type"))
	if !ok {
		p.note("the vision encoder (vision_config.model_type %s) is not counted", quoted(kind))
		return 0, nil
	}
	v := &encoder{
		reader: &reader{file: p.file, levels: []level{{"vision_config.", config}}, defaults: object{
			"num_channels": []byte("3"), "temporal_patch_size": []byte("1"), "spatial_merge_size": []byte("2"),
		}},
		tower: t, text: int64(text),
	}
	// In some configs, the number of joined patches is in the outer part.
	if outer := top["spatial_merge_size"]; !isNull(outer) {
		v.defaults["spatial_merge_size"] = outer
	}
	if pooled := top["mm_tokens_per_image"]; !isNull(pooled) {
		v.defaults["mm_tokens_per_image"] = pooled
	}
	params := v.params()
	if v.err == nil && params > maxExtra {
		v.fail(found{"vision_config", []byte(strconv.FormatInt(params, 10))}, "is not a plausible number of parameters")
	}
	shape := v.shape()
	p.err = v.err
	return params, shape
}

// encoder counts the parameters of a vision transformer.
type encoder struct {
	*reader
	tower tower
	// text is the hidden size of the language model.
	text int64
}

func (v *encoder) size(keys ...string) int64 {
	return int64(v.required(1<<16, keys...))
}

func (v *encoder) params() int64 {
	hidden, inner := v.size("hidden_size"), v.size("intermediate_size")
	layers := int64(v.required(1<<10, "num_hidden_layers", "depth"))
	patch := int64(v.required(1<<10, "patch_size"))
	channels := int64(v.required(1<<6, "num_channels", "in_channels", "in_chans"))
	temporal := int64(v.required(1<<6, "temporal_patch_size"))
	if v.err != nil {
		return 0
	}
	total := channels * patch * patch * temporal * hidden
	if v.tower.PatchBias {
		total += hidden
	}
	total += v.positions(patch)*hidden + int64(v.tower.OuterNorms)*v.norm(hidden)
	total += layers * (4*v.matrix(hidden, hidden) + v.mlp(hidden, inner) + 2*v.norm(hidden))
	return total + v.project(hidden, inner)
}

// shape describes the encoder and its largest image.
func (v *encoder) shape() *model.Vision {
	out := &model.Vision{
		Hidden: int(v.size("hidden_size")), Intermediate: int(v.size("intermediate_size")), Gated: v.tower.Gated,
		Tokens: v.tower.Tokens, Taps: len(v.integers("deepstack_visual_indexes")),
		VideoTokens: v.tower.VideoTokens, VideoPairs: v.tower.VideoPairs,
	}
	if v.tower.Tokens > 0 || v.tower.AnySize {
		out.PatchPixels = v.required(1<<10, "patch_size")
	}
	merge := v.required(1<<4, "spatial_merge_size")
	if out.Tokens > 0 {
		out.Patches = out.Tokens * merge * merge
		return v.checked(out)
	}
	side := v.required(1<<14, "image_size") / max(v.required(1<<10, "patch_size"), 1)
	out.Patches = side * side * (1 + v.tower.Tiles)
	out.Tokens = out.Patches / max(merge*merge, 1)
	if _, pooled := v.defaults["mm_tokens_per_image"]; pooled {
		out.Tokens = v.required(1<<16, "mm_tokens_per_image")
	}
	return v.checked(out)
}

// checked returns nil if the config does not describe the encoder.
func (v *encoder) checked(shape *model.Vision) *model.Vision {
	if v.err != nil || min(shape.Tokens, shape.Patches) < 1 {
		return nil
	}
	return shape
}

// matrix counts the parameters of a matrix and its bias.
func (v *encoder) matrix(in, out int64) int64 {
	if v.tower.Bias {
		return in*out + out
	}
	return in * out
}

// norm counts the weights of a norm, and the biases of a layer norm.
func (v *encoder) norm(width int64) int64 {
	if v.tower.LayerNorm {
		return 2 * width
	}
	return width
}

func (v *encoder) mlp(hidden, inner int64) int64 {
	count := v.matrix(hidden, inner) + v.matrix(inner, hidden)
	if v.tower.Gated {
		count += v.matrix(hidden, inner)
	}
	return count
}

// positions counts the learned positions, and two more for a class token: the token and its position.
func (v *encoder) positions(patch int64) int64 {
	var count int64
	switch v.tower.Positions {
	case positionsKey:
		count = v.size("num_position_embeddings")
	case positionsImage:
		side := int64(v.required(1<<14, "image_size")) / patch
		count = side * side
	}
	if v.tower.ClassToken {
		count += 2
	}
	return count
}

// project counts the parameters of the projector.
func (v *encoder) project(hidden, inner int64) int64 {
	merge := int64(v.required(1<<4, "spatial_merge_size"))
	joined := merge * merge * hidden
	switch v.tower.Projector {
	case projectorPooled:
		return hidden + hidden*v.text
	case projectorMerged:
		return hidden + joined*hidden + hidden*v.text + v.text*v.text
	case projectorShuffled:
		in, out := v.size("projector_input_dim"), v.size("projector_output_dim")
		return inner*in + in*out + v.size("vision_output_dim")*v.text
	case projectorMLP:
		matrices := v.matrix(joined, joined) + v.matrix(joined, int64(v.required(maxHidden, "out_hidden_size")))
		taps := v.integers("deepstack_visual_indexes")
		if len(taps) > 1<<10 {
			f, _ := v.find("deepstack_visual_indexes")
			v.fail(f, "has more entries than an encoder has layers")
			return 0
		}
		return v.norm(hidden) + matrices + int64(len(taps))*(v.norm(joined)+matrices)
	}
	return 0
}
