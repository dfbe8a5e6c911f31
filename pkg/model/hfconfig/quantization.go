// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// quantization returns the catalogue's name for the format of the weights.
func (p *parser) quantization(top object, side []byte) (string, error) {
	// As in vLLM, the outer config takes precedence over the language model's.
	for _, key := range []string{"quantization_config", "compression_config"} {
		for _, l := range slices.Backward(p.levels) {
			if config := l.object.sub(key); config != nil {
				return p.format(&reader{file: p.file, levels: []level{{l.prefix + key + ".", config}}})
			}
		}
	}
	if len(side) > 0 {
		o, err := decodeObject("hf_quant_config.json", side)
		if err != nil {
			return "", err
		}
		r := &reader{file: "hf_quant_config.json", levels: []level{{"quantization.", o.sub("quantization")}}}
		if r.has("quant_algo") {
			return p.modelopt(r)
		}
	}
	return p.dtype(top)
}

// dtype returns the format of unquantised weights.
func (p *parser) dtype(top object) (string, error) {
	r := &reader{file: p.file, levels: slices.Concat([]level{{"", top}}, p.levels)}
	f, ok := r.find("dtype", "torch_dtype")
	if !ok {
		p.note("no dtype is given: bf16 is assumed")
		return "bf16", nil
	}
	switch name := r.text("dtype", "torch_dtype"); strings.TrimPrefix(name, "torch.") {
	case "bfloat16":
		return "bf16", nil
	case "float16", "half":
		return "fp16", nil
	case "float32", "float":
		// By default, vLLM's dtype is auto.
		p.note("the weights are stored in 32 bits, and vLLM loads them in 16")
		p.storedBytes = 4
		return "fp16", nil
	}
	r.fail(f, "is not a supported type of weights: use bfloat16, float16 or float32")
	return "", r.err
}

// format returns the format in quantization_config.
func (p *parser) format(r *reader) (string, error) {
	var name string
	switch method := r.text("quant_method"); method {
	case "fp8", "fbgemm_fp8":
		name = "fp8-channel"
		if r.has("weight_block_size") {
			name = "fp8"
		}
	case "awq", "gptq", "auto-round", "awq_marlin", "gptq_marlin":
		name = p.grouped4(r, method)
	case "compressed-tensors":
		name = p.compressed(r)
	case "mxfp4":
		name = method
	case "bitsandbytes":
		name = "nf4"
		if r.boolean("load_in_8bit") || r.boolean("_load_in_8bit") {
			name = "int8"
		}
	case "modelopt", "modelopt_fp4", "modelopt_mixed":
		return p.modelopt(r)
	default:
		f, _ := r.find("quant_method")
		if f.field == "" {
			f.field = r.levels[0].prefix + "quant_method"
		}
		r.fail(f, "is not a supported format of weights")
	}
	return name, r.err
}

// grouped4 returns the name of an integer format with a scale for each group of weights.
func (p *parser) grouped4(r *reader, method string) string {
	bits, group := r.required(16, "bits", "w_bit"), r.integer(-1, maxIntermediate, "group_size", "q_group_size")
	isAWQ := strings.HasPrefix(method, "awq") || strings.Contains(r.text("packing_format"), "awq")
	switch {
	case r.err != nil:
		return ""
	case bits == 8:
		return "int8"
	case bits != 4:
		f, _ := r.find("bits", "w_bit")
		r.fail(f, "is not a supported width: use 4 or 8")
		return ""
	}
	// Each group has a 16-bit scale, and a zero point as wide as a weight.
	p.groups(group, 2+0.5)
	if isAWQ {
		return "awq"
	}
	return "gptq-int4"
}

// usualGroup is the group size of the catalogue's formats.
const usualGroup = 128

// groups records an unusual group size. beside is the number of bytes of a group in addition to its 4-bit weights. A
// negative size means that a whole channel is a group.
func (p *parser) groups(size int, beside float64) {
	switch {
	case size == 0 || size == usualGroup:
	case size < 0:
		p.bytesPerParam = 0.5
	default:
		p.bytesPerParam = 0.5 + beside/float64(size)
	}
}

// groupedBytes returns the size of weights whose linear layers have an unusual group size.
func groupedBytes(s model.Shape, bytesPerParam float64) int64 {
	quantised, other := 0.0, float64(s.EmbeddingParams()+int64(s.Hidden)+s.ExtraParams)
	if !s.Tied {
		other += float64(s.EmbeddingParams())
	}
	for _, l := range s.LayerKinds() {
		quantised += float64(l.Count) * float64(l.Attention+l.KeyValue+l.Dense+int64(l.Experts)*l.Expert)
		other += float64(l.Count) * float64(l.Replicated)
	}
	return int64(quantised*bytesPerParam + 2*other)
}

// compressed returns the format of the first group in a compressed-tensors config. Further groups are exceptions.
func (p *parser) compressed(r *reader) string {
	f, ok := r.find("config_groups")
	groups := object{"": f.raw}.sub("")
	if !ok || len(groups) == 0 {
		r.fail(found{r.levels[0].prefix + "config_groups", f.raw}, "must describe a group of weights")
		return ""
	}
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	first := slices.Min(names)
	prefix := f.field + "." + first + ".weights."
	w := &reader{file: r.file, levels: []level{{prefix, groups.sub(first).sub("weights")}}}
	bits, kind, strategy := w.required(64, "num_bits"), w.text("type"), w.text("strategy")
	group := w.integer(-1, maxIntermediate, "group_size")
	if r.err = w.err; w.err != nil {
		return ""
	}
	switch format := fmt.Sprint(kind, bits); {
	case format == "float8" && strategy == "block":
		return "fp8"
	case format == "float8":
		return "fp8-channel"
	case format == "float4" && group == 32:
		return "mxfp4"
	case format == "float4":
		p.expertsOnly = keepsAttention(r)
		return "nvfp4"
	case format == "int8":
		return "int8"
	case format == "int4" && attentionIgnored(r.texts("ignore")):
		return "int4-experts"
	case format == "int4":
		p.groups(group, besideGroup(w))
		return "w4a16"
	}
	r.fail(found{prefix + "num_bits", fmt.Append(nil, bits)}, fmt.Sprintf("of type %s is not supported", quoted(kind)))
	return ""
}

// besideGroup returns the bytes of a group in addition to its 4-bit weights: a 16-bit scale, and a zero point unless
// the weights are symmetric.
func besideGroup(w *reader) float64 {
	if w.has("symmetric") && !w.boolean("symmetric") {
		return 2 + 0.5
	}
	return 2
}

// attentionIgnored reports whether only the experts are quantised and attention keeps its precision.
func attentionIgnored(ignored []string) bool {
	return slices.ContainsFunc(ignored, func(name string) bool {
		return strings.HasPrefix(name, "re:") && strings.Contains(name, "self_attn")
	})
}

// keepsAttention reports whether a 4-bit checkpoint keeps attention in 16 bits. Publishers of mixtures quantise only
// the experts. If the config does not say so, the larger size counts.
func keepsAttention(r *reader) bool {
	ignored := slices.Concat(r.texts("ignore"), r.texts("exclude_modules"))
	return len(ignored) == 0 || slices.ContainsFunc(ignored, func(name string) bool { return strings.Contains(name, "attn") })
}

// expertBytes returns the size of weights of which only the experts are quantised.
func expertBytes(s model.Shape, bytesPerParam float64) int64 {
	experts := int64(0)
	for _, l := range s.LayerKinds() {
		experts += int64(l.Count) * int64(l.Experts) * l.Expert
	}
	return int64(float64(experts)*bytesPerParam) + loadedBytes*(s.Params()-experts)
}

// nvfp4Bytes is the size of a parameter: 4 bits, and an 8-bit scale for every 16 parameters.
const nvfp4Bytes = 0.5625

// modelopt returns the format of NVIDIA's ModelOpt.
func (p *parser) modelopt(r *reader) (string, error) {
	switch algo := r.text("quant_algo"); algo {
	case "FP8", "FP8_PER_CHANNEL_PER_TOKEN":
		return "fp8-channel", r.err
	case "FP8_PB_WO":
		return "fp8", r.err
	case "NVFP4", "NVFP4_AWQ", "W4A16_NVFP4":
		p.expertsOnly = keepsAttention(r)
		return "nvfp4", r.err
	case "MXFP4":
		return "mxfp4", r.err
	case "W4A16_AWQ", "W4A8_AWQ":
		return "awq", r.err
	case "MIXED_PRECISION":
		p.note("formats differ between layers: nvfp4 is assumed for all")
		return "nvfp4", r.err
	}
	f, _ := r.find("quant_algo")
	f.field = r.levels[0].prefix + "quant_algo"
	r.fail(f, "is not a supported format of weights")
	return "", r.err
}
