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

// lab returns the source of a row.
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

// group returns a row's group: the measurements of one lab for one model in one format on one GPU.
func (b *bench) group() string {
	return strings.Join([]string{b.lab(), b.run.model, b.gpu, formatOf(&b.run)}, " ")
}

// kernels returns what decides a group's constants: the format, experts or none, and the generation of the GPU.
func (b *bench) kernels() string {
	generation, _, _ := strings.Cut(b.deployment.GPU.ComputeCapability, ".")
	if b.experts {
		return formatOf(&b.run) + " experts on " + generation
	}
	return formatOf(&b.run) + " on " + generation
}

// leftOut returns the groups to leave out of every fit: of the groups with the same kernels, sorted by the hash of
// their names, every third from the second on. Every constant keeps some rows, and the selection is arbitrary.
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

// measured returns vLLM's rows without an objection and without a queue.
func measured(rows []*bench) []*bench {
	return slices.DeleteFunc(slices.Clone(rows), func(b *bench) bool {
		return b.engine != "vllm" || b.waits() || b.doubt() != "" || b.mixed()
	})
}

// splitRows separates the rows for the fit from the rows left out of it.
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
