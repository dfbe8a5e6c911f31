// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastGarbage is how many bytes of garbage may lie beside what is held before Go collects it. GOGC alone allows a share of
// what is held, which the chart keeps small for those who have many Workspaces. Of what a few of them take it is so little
// that half of the controller's processor time went into collections (docs/benchmarks.md).
const leastGarbage = 20 << 20

// What the runtime is asked for.
const (
	metricPercent = "/gc/gogc:percent"
	metricLive    = "/gc/heap/live:bytes"
)

// allowGarbage has Go wait with each collection for leastGarbage, or for GOGC's share if that is more, until the context
// ends. A GOGC that is off stays off.
func allowGarbage(ctx context.Context) {
	if share := metric(metricPercent); share < math.MaxInt32 {
		afterCollection(ctx, int(share))
	}
}

// afterCollection sets what the next collection waits for, and has itself called after that.
func afterCollection(ctx context.Context, share int) {
	if ctx.Err() != nil {
		return
	}
	debug.SetGCPercent(percentFor(share, metric(metricLive)))
	// Nothing holds it, so that it goes with the next collection. Anything smaller may share its memory with others.
	mark := new([64]byte)
	runtime.AddCleanup(mark, func(share int) { afterCollection(ctx, share) }, share)
}

// percentFor is GOGC's percentage for what is held now.
func percentFor(share int, live uint64) int {
	const most = 400 // of next to nothing
	if live == 0 {
		return max(share, most)
	}
	return max(share, int(min(100*leastGarbage/live, most)))
}

func metric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
