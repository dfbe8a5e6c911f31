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

// leastGarbage is how many bytes of garbage may accumulate before a collection. GOGC alone allows a share of the
// live memory, and the chart keeps it small for installations with many Workspaces. With few Workspaces the share
// is so small that collections took half of the controller's processor time (docs/benchmarks.md).
const leastGarbage = 20 << 20

// Names of the runtime's metrics.
const (
	metricPercent = "/gc/gogc:percent"
	metricLive    = "/gc/heap/live:bytes"
)

// allowGarbage delays each collection until there is leastGarbage, or GOGC's share if that is more, until the
// context ends. If GOGC is off, it stays off.
func allowGarbage(ctx context.Context) {
	if share := metric(metricPercent); share < math.MaxInt32 {
		afterCollection(ctx, int(share))
	}
}

// afterCollection sets the threshold of the next collection, and registers itself to run after that.
func afterCollection(ctx context.Context, share int) {
	if ctx.Err() != nil {
		return
	}
	debug.SetGCPercent(percentFor(share, metric(metricLive)))
	// Nothing references it, so the next collection frees it. Smaller objects may share their memory with others.
	mark := new([64]byte)
	runtime.AddCleanup(mark, func(share int) { afterCollection(ctx, share) }, share)
}

// percentFor is GOGC's percentage for the present live memory.
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
