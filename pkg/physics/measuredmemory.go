// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"math"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// mostLack is the largest part of a GPU's memory by which a start may have less KV cache than the law says. The law was
// off by 2.6 GiB of 80 GiB after a release with large changes. A start that is further off had another set-up, or is
// false and meant to make plans fail.
const mostLack = 0.08

// Starts returns the runs that report the memory at their start.
func Starts(runs []catalog.Measurement) (starts []catalog.Measurement) {
	for i := range runs {
		if runs[i].Memory.KVCacheGiB > 0 {
			starts = append(starts, runs[i])
		}
	}
	return starts
}

// MeasuredMemory is Memory with less KV cache, if a start of the same set-up had less than the law says. A start never
// adds KV cache, so it cannot make a model fit that the law rejects. All starts must be of the model's architecture and
// size in its format. A start counts if the GPU, the layout and the engine's minor release match. MeasuredMemory
// ignores the deployment's Budget.
func MeasuredMemory(m *Model, d *Deployment, starts []catalog.Measurement) Budget {
	gpu, l, s, e := d.GPU, d.Layout, d.Serving, d.Engine
	b := Memory(m, gpu, l, s, e)
	if len(starts) == 0 || s.Eager || s.Media != (Media{}) || m.weights.Adapters.Slots > 0 || l.Nodes > 1 {
		return b
	}
	most := 0.0
	for i := range starts {
		run := &starts[i]
		if run.KVType != kvTypeOf(d) || minor(run.Version) != minor(cmp.Or(s.Version, e.Version)) || !sameSetUp(run, d) {
			continue
		}
		law := Memory(m, gpu, l, &Serving{
			MaxModelLen: run.Memory.MaxModelLen, MaxNumSeqs: run.Memory.MaxNumSeqs, MaxBatchedTokens: run.Memory.MaxBatchedTokens,
			Utilization: run.Memory.Utilization, KVType: s.KVType, Version: s.Version,
		}, e)
		lack := law.KVCache - run.Memory.KVCacheGiB
		if math.Abs(lack) > mostLack*gpu.MemoryGiB {
			continue
		}
		b.Measured = true
		most = max(most, lack)
	}
	return b.lowered(most)
}

// lowered returns a budget with less KV cache, and as much more for libraries.
func (b Budget) lowered(gibs float64) Budget {
	if gibs <= 0 {
		return b
	}
	left := 0.0
	if b.KVCache > 0 {
		left = max(b.KVCache-gibs, 0) / b.KVCache
	}
	b.KVCache -= gibs
	b.NonTorch += gibs
	b.KVTokens = int(float64(b.KVTokens) * left)
	b.MaxConcurrency *= left
	return b
}

// minor returns the first two numbers of a release.
func minor(version string) string {
	parts := strings.SplitN(release(version), ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}
