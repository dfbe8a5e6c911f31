// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import "testing"

// A search for a plan calls Speed some thousand times.
func BenchmarkSpeed(b *testing.B) {
	rows := benches(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		rows[i%len(rows)].pace()
	}
}

func TestSpeedAllocatesNothing(t *testing.T) {
	rows := benches(t)
	if allocations := testing.AllocsPerRun(10, func() {
		for _, b := range rows {
			b.pace()
		}
	}); allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}
