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

// leastGarbage is the minimum garbage in bytes before a collection. GOGC allows only a percentage of the live memory,
// which the chart keeps low for installations with many Workspaces. With few Workspaces, this is so little that
// collections took half of the controller's CPU time (docs/benchmarks.md).
const leastGarbage = 20 << 20

// Names of the runtime's metrics.
const (
	metricPercent = "/gc/gogc:percent"
	metricLive    = "/gc/heap/live:bytes"
)

// allowGarbage delays each collection until the garbage reaches leastGarbage, or GOGC's share if that is more. It works
// until the context ends. If GOGC is off, it stays off.
func allowGarbage(ctx context.Context) {
	if share := metric(metricPercent); share < math.MaxInt32 {
		afterCollection(ctx, int(share))
	}
}

// afterCollection sets the threshold of the next collection, and registers itself to run after that collection.
func afterCollection(ctx context.Context, share int) {
	if ctx.Err() != nil {
		return
	}
	debug.SetGCPercent(percentFor(share, metric(metricLive)))
	// Nothing references the mark, so the next collection frees it. Smaller objects may share their memory with others.
	mark := new([64]byte)
	runtime.AddCleanup(mark, func(share int) { afterCollection(ctx, share) }, share)
}

// percentFor returns GOGC's percentage for the present live memory in bytes.
func percentFor(share int, live uint64) int {
	const most = 400 // limits the percentage for very small live memory
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
