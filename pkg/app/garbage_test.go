// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	const mib = 1 << 20
	tests := []struct {
		reason string
		share  int
		live   uint64
		want   int
	}{
		{"of little that is held the garbage is the least", 25, 40 * mib, 50},
		{"of much it is GOGC's share", 25, 200 * mib, 25},
		{"where both are the same", 25, 80 * mib, 25},
		{"a share that allows more stands", 100, 40 * mib, 100},
		{"nothing is held yet", 25, 0, 400},
		{"next to nothing is held", 25, 1, 400},
		{"next to nothing, and a share that allows more", 1000, 1, 1000},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := percentFor(test.share, test.live); got != test.want {
				t.Errorf("percentFor(%d, %d) = %d, want %d", test.share, test.live, got, test.want)
			}
		})
	}
}

// The percentage follows the live heap at every collection.
func TestAllowGarbageFollowsHeap(t *testing.T) {
	before := debug.SetGCPercent(25)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	allowGarbage(t.Context())
	await := func(what string, holds func(percent int) bool) int {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			runtime.GC()
			percent := int(metric(metricPercent))
			if holds(percent) {
				return percent
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the percentage is %d", what, percent)
			}
		}
	}
	few := await("little is held", func(percent int) bool { return percent > 25 })
	held := make([]byte, 8*leastGarbage)
	many := await("much is held", func(percent int) bool { return percent < few })
	runtime.KeepAlive(held)
	await("little is held again", func(percent int) bool { return percent > many })
}

func TestAllowGarbageLeavesGOGCOff(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	allowGarbage(t.Context())
	runtime.GC()
	if off := debug.SetGCPercent(-1); off != -1 {
		t.Errorf("collections are on again, at %d", off)
	}
}
