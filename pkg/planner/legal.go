// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/pkg/wording"
)

// CannotRun explains why an engine cannot serve a model on a kind of GPU, in a format of weights and a type of KV
// cache; "" if it can. Both formats may be empty.
func CannotRun(e *catalog.Engine, s *model.Shape, quantization, kvType string, gpu *sku.GPU) string {
	need, named := e.ComputeCapability[quantization]
	what := quantization
	if !named {
		need, named = e.ComputeCapability["default"]
		what = "engine " + e.Name
	}
	switch {
	case named && gpu.ComputeCapability == "":
		return fmt.Sprintf("%s needs an NVIDIA GPU of compute capability %s or higher, but %s is from another maker", what, need, gpu.Class)
	case named && capability(gpu.ComputeCapability) < capability(need):
		return needsCapability(what, need, gpu)
	}
	if reason := cannotChoose(e, s, kvType, gpu); reason != "" {
		return reason
	}
	return cannotKeep(e, s, kvType, gpu)
}

// CannotSplit explains why the layers of a model in a format cannot be cut into a number of parts; "" if they can. If
// whole is set, it spreads whole experts instead of cutting them.
func CannotSplit(s *model.Shape, q *model.Quantization, parts int, whole bool) string {
	return cannotSplit(s, q, parts, whole)
}

func needsCapability(what, need string, gpu *sku.GPU) string {
	return fmt.Sprintf("%s needs compute capability %s, but %s has %s", what, need, gpu.Class, gpu.ComputeCapability)
}

// isSparse reports whether the model has sparse attention: an indexer chooses the tokens.
func isSparse(s *model.Shape) bool { return s.MLA != nil && s.MLA.IndexHeads > 0 }

// cannotChoose explains why a GPU has no kernels for the model's sparse attention.
func cannotChoose(e *catalog.Engine, s *model.Shape, kvType string, gpu *sku.GPU) string {
	if !isSparse(s) || len(e.SparseAttention) == 0 {
		return ""
	}
	var runs []string
	for i := range e.SparseAttention {
		kernels := &e.SparseAttention[i]
		switch {
		case kernels.Capability != gpu.ComputeCapability:
			runs = append(runs, kernels.Capability)
		case len(kernels.KVTypes) > 0 && !slices.Contains(kernels.KVTypes, kvType):
			return fmt.Sprintf("sparse attention on %s (compute capability %s) needs a KV cache in %s: "+
				"allow it with inference.engine.allowedKVCacheTypes", gpu.Class, kernels.Capability, kernels.KVTypes[0])
		default:
			return ""
		}
	}
	return fmt.Sprintf("sparse attention needs compute capability %s, but %s has %s", orList(runs), gpu.Class, gpu.ComputeCapability)
}

// cannotKeep explains why a GPU has no kernels for a type of KV cache, or why the type does not suit the model.
func cannotKeep(e *catalog.Engine, s *model.Shape, kvType string, gpu *sku.GPU) string {
	t := e.KVType(kvType)
	if t == nil || kvType == "" {
		return ""
	}
	what := "a KV cache in " + kvType
	if reason := unsuitable(t, s); reason != "" {
		return what + reason
	}
	need, has := t.Capability, capability(gpu.ComputeCapability)
	if t.PlainCapability != "" && s.MLA == nil && !s.Sinks && hasHeadDims(s, t.PlainHeadDims) {
		need = t.PlainCapability
	}
	switch {
	case has < capability(need):
		return needsCapability(what, need, gpu)
	case t.Below != "" && has >= capability(t.Below):
		return fmt.Sprintf("%s needs compute capability below %s, but %s has %s", what, t.Below, gpu.Class, gpu.ComputeCapability)
	default:
		return ""
	}
}

// unsuitable explains why a type of KV cache does not suit the model's attention.
func unsuitable(t *catalog.KVCacheType, s *model.Shape) string {
	switch {
	case t.For == catalog.AttentionSparse && !isSparse(s):
		return " is for sparse attention, which the model does not have"
	case t.For == catalog.AttentionHeads && s.MLA != nil:
		return " is for keys and values of heads, but the model caches latent vectors"
	default:
		return ""
	}
}

// hasHeadDims reports whether the heads of all layers have one of the dimensions.
func hasHeadDims(s *model.Shape, dims []int) bool {
	return slices.Contains(dims, s.HeadDim) && !slices.ContainsFunc(s.Pattern, func(g model.LayerGroup) bool {
		return g.HeadDim != 0 && !slices.Contains(dims, g.HeadDim)
	})
}

// kvFlag is the engine's flag for the type of KV cache.
const kvFlag = "kv-cache-dtype"

// kvName returns the value of the engine's flag for the KV cache: the form's type, or else the type that the weights
// require. It is empty for the model's own.
func (f *form) kvName() string {
	if f.kvType != "" {
		return f.kvType
	}
	for _, flag := range f.artifact.Flags {
		if flag.Name == kvFlag {
			return flag.Value
		}
	}
	return ""
}

// knownKVTypes drops unsupported types of KV cache, with a warning. setting is the user's field with the types.
func knownKVTypes(setting string, types []string, s *model.Shape, e *catalog.Engine) (known, warnings []string) {
	for _, t := range types {
		entry := e.KVType(t)
		switch {
		case t == automatic || t == "":
		case entry == nil:
			warnings = append(warnings, wording.Clip(fmt.Sprintf("%s: %s is ignored: for engine %s, plans support a KV cache in %s",
				setting, t, e.Name, strings.Join(e.KVTypes(), ", ")), longestWarning))
		case unsuitable(entry, s) != "":
			warning := fmt.Sprintf("%s: %s is ignored: it%s", setting, t, unsuitable(entry, s))
			warnings = append(warnings, wording.Clip(warning, longestWarning))
		default:
			known = append(known, t)
		}
	}
	return known, warnings
}

// orList joins alternatives for a message.
func orList(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// standsBack reports whether the GPU can compute in the format that f replaces, and so does not need f.
func (f *form) standsBack(s *model.Shape, m *machine) bool {
	return f.insteadOf != "" && CannotRun(f.engine, s, f.insteadOf, f.kvName(), &m.gpu) == ""
}

// capability converts a compute capability to a number for comparisons. The catalogue has checked the text.
func capability(text string) int {
	major, minor, _ := strings.Cut(text, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return a*10 + b
}
