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

// CannotRun says why an engine does not serve a model on a kind of GPU, in a format of weights and a type
// of KV cache; both may be empty.
func CannotRun(e *catalog.Engine, s *model.Shape, quantization, kvType string, gpu *sku.GPU) string {
	need, named := e.ComputeCapability[quantization]
	what := quantization
	if !named {
		need, named = e.ComputeCapability["default"]
		what = "engine " + e.Name
	}
	switch {
	case named && gpu.ComputeCapability == "":
		return fmt.Sprintf("%s needs an NVIDIA GPU of compute capability %s, and %s is not one", what, need, gpu.Class)
	case named && capability(gpu.ComputeCapability) < capability(need):
		return needsCapability(what, need, gpu)
	}
	if reason := cannotChoose(e, s, kvType, gpu); reason != "" {
		return reason
	}
	return cannotKeep(e, s, kvType, gpu)
}

// CannotSplit says why the layers of a model in a format cannot be cut in a number of parts, their experts with
// them or whole.
func CannotSplit(s *model.Shape, q *model.Quantization, parts int, whole bool) string {
	return cannotSplit(s, q, parts, whole)
}

func needsCapability(what, need string, gpu *sku.GPU) string {
	return fmt.Sprintf("%s needs compute capability %s, %s has %s", what, need, gpu.Class, gpu.ComputeCapability)
}

// isSparse reports whether an indexer chooses the tokens for attention.
func isSparse(s *model.Shape) bool { return s.MLA != nil && s.MLA.IndexHeads > 0 }

// cannotChoose says why a GPU has no kernels for the sparse attention of a model.
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
	return fmt.Sprintf("sparse attention runs on compute capability %s, %s has %s", orList(runs), gpu.Class, gpu.ComputeCapability)
}

// cannotKeep says why a GPU has no kernels for a type of KV cache, or the type is not for the model.
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
		return fmt.Sprintf("%s needs compute capability below %s, %s has %s", what, t.Below, gpu.Class, gpu.ComputeCapability)
	default:
		return ""
	}
}

// unsuitable says why a type of KV cache is not for the attention of a model.
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

// hasHeadDims reports whether all layers' heads have one of the dimensions.
func hasHeadDims(s *model.Shape, dims []int) bool {
	return slices.Contains(dims, s.HeadDim) && !slices.ContainsFunc(s.Pattern, func(g model.LayerGroup) bool {
		return g.HeadDim != 0 && !slices.Contains(dims, g.HeadDim)
	})
}

// kvFlag is the engine's flag for the type of KV cache.
const kvFlag = "kv-cache-dtype"

// kvName returns the engine's flag for the KV cache: the form's type, else the one that the weights require; empty
// for the model's own.
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

// knownKVTypes leaves out unsupported types of KV cache, with a warning. setting is the user's field for them.
func knownKVTypes(setting string, types []string, s *model.Shape, e *catalog.Engine) (known, warnings []string) {
	for _, t := range types {
		entry := e.KVType(t)
		switch {
		case t == automatic || t == "":
		case entry == nil:
			warnings = append(warnings, wording.Clip(fmt.Sprintf("%s: %s is ignored: a KV cache of engine %s can be planned in %s",
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

// orList words alternatives.
func orList(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// standsBack reports whether a GPU computes in the format that a form replaces.
func (f *form) standsBack(s *model.Shape, m *machine) bool {
	return f.insteadOf != "" && CannotRun(f.engine, s, f.insteadOf, f.kvName(), &m.gpu) == ""
}

// capability orders compute capabilities; the catalogue has checked their form.
func capability(text string) int {
	major, minor, _ := strings.Cut(text, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return a*10 + b
}
