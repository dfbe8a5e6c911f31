// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// lab is who measured a row.
func (r *run) lab() string {
	switch {
	case strings.Contains(r.note, "InferenceX"):
		return "InferenceX"
	case strings.Contains(r.source, "aiconfigurator"):
		return "NVIDIA"
	case strings.Contains(r.source, "gpustack"):
		return "GPUStack"
	case strings.Contains(r.source, "vllm.ai"):
		return "vLLM"
	case strings.Contains(r.source, "vultr.com"):
		return "Vultr"
	default:
		return "others"
	}
}

// group of a row: what one lab measured of one model in one format on one GPU.
func (b *bench) group() string {
	return strings.Join([]string{b.lab(), b.run.model, b.gpu, formatOf(&b.run)}, " ")
}

// kernels that a group's constants are those of: a format's, of experts or not, on a generation of GPUs.
func (b *bench) kernels() string {
	generation, _, _ := strings.Cut(b.deployment.GPU.ComputeCapability, ".")
	if b.experts {
		return formatOf(&b.run) + " experts on " + generation
	}
	return formatOf(&b.run) + " on " + generation
}

// groups that are kept out of every fit: of those of the same kernels, in the order of their names' hashes, the
// second of each three. So no constant is left without rows, and nobody chooses.
func leftOut(rows []*bench) map[string]bool {
	kernels := map[string]map[string]bool{}
	for _, b := range rows {
		if kernels[b.kernels()] == nil {
			kernels[b.kernels()] = map[string]bool{}
		}
		kernels[b.kernels()][b.group()] = true
	}
	out := map[string]bool{}
	for _, groups := range kernels {
		ordered := slices.SortedFunc(maps.Keys(groups), func(a, b string) int { return cmp.Compare(hash(a), hash(b)) })
		for i := 1; i < len(ordered); i += 3 {
			out[ordered[i]] = true
		}
	}
	return out
}

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// measured are the rows of vLLM that nothing speaks against and that do not wait.
func measured(rows []*bench) []*bench {
	return slices.DeleteFunc(slices.Clone(rows), func(b *bench) bool {
		return b.engine != "vllm" || b.waits() || b.doubt() != "" || b.mixed()
	})
}

// splitRows are those that constants are fitted to, and those that are kept out.
func splitRows(rows []*bench) (fitted, kept []*bench) {
	rows = measured(rows)
	out := leftOut(rows)
	for _, b := range rows {
		if out[b.group()] {
			kept = append(kept, b)
			continue
		}
		fitted = append(fitted, b)
	}
	return fitted, kept
}
