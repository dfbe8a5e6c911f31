// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/hub"
)

func TestRangesAdd(t *testing.T) {
	for _, tc := range []struct {
		reason string
		to     ranges
		add    hub.Range
		want   ranges
	}{
		{"to nothing", nil, hub.Range{Start: 5, End: 9}, ranges{{Start: 5, End: 9}}},
		{"nothing changes nothing", ranges{{Start: 5, End: 9}}, hub.Range{Start: 7, End: 7}, ranges{{Start: 5, End: 9}}},
		{"before, apart", ranges{{Start: 5, End: 9}}, hub.Range{Start: 1, End: 4}, ranges{{Start: 1, End: 4}, {Start: 5, End: 9}}},
		{"touching joins", ranges{{Start: 5, End: 9}}, hub.Range{Start: 1, End: 5}, ranges{{Start: 1, End: 9}}},
		{"a bridge joins both sides", ranges{{Start: 0, End: 2}, {Start: 4, End: 6}}, hub.Range{Start: 2, End: 4}, ranges{{Start: 0, End: 6}}},
		{"what is covered vanishes", ranges{{Start: 2, End: 3}, {Start: 4, End: 5}, {Start: 8, End: 9}}, hub.Range{Start: 1, End: 6}, ranges{{Start: 1, End: 6}, {Start: 8, End: 9}}},
		{"inside changes nothing", ranges{{Start: 0, End: 9}}, hub.Range{Start: 3, End: 4}, ranges{{Start: 0, End: 9}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.to.add(tc.add)); diff != "" {
				t.Errorf("add() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRangesMissing(t *testing.T) {
	for _, tc := range []struct {
		reason string
		have   ranges
		size   int64
		want   []hub.Range
	}{
		{"an empty file lacks nothing", nil, 0, nil},
		{"everything, in pieces", nil, 25, []hub.Range{{Start: 0, End: 10}, {Start: 10, End: 20}, {Start: 20, End: 25}}},
		{"holes only", ranges{{Start: 3, End: 10}, {Start: 12, End: 25}}, 25, []hub.Range{{Start: 0, End: 3}, {Start: 10, End: 12}}},
		{"the end", ranges{{Start: 0, End: 10}}, 25, []hub.Range{{Start: 10, End: 20}, {Start: 20, End: 25}}},
		{"nothing", ranges{{Start: 0, End: 25}}, 25, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.have.missing(tc.size, 10)); diff != "" {
				t.Errorf("missing() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRangesAgainstBitmap compares ranges with a model that has one bool per byte.
func TestRangesAgainstBitmap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const size = 40
	for range 500 {
		var set ranges
		var bitmap [size]bool
		for range r.IntN(12) {
			start := r.Int64N(size)
			end := start + r.Int64N(size-start+1)
			set = set.add(hub.Range{Start: start, End: end})
			for i := start; i < end; i++ {
				bitmap[i] = true
			}
		}
		for _, m := range set.missing(size, 7) {
			for i := m.Start; i < m.End; i++ {
				if bitmap[i] {
					t.Fatalf("%v: byte %d is said to be missing", set, i)
				}
				bitmap[i] = true
			}
		}
		for i, there := range bitmap {
			if !there {
				t.Fatalf("%v: byte %d is neither there nor missing", set, i)
			}
		}
		if !set.valid(size) {
			t.Fatalf("%v is not canonical", set)
		}
	}
}
