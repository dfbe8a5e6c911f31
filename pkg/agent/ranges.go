// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/modelberth/modelberth/pkg/hub"
)

// ranges is a set of bytes of a file: sorted, disjoint and not touching.
// The zero value is empty. Methods return new sets and never change old ones.
type ranges []hub.Range

// add returns the union with one more range.
func (rs ranges) add(r hub.Range) ranges {
	if r.Len() <= 0 {
		return rs
	}
	out := make(ranges, 0, len(rs)+1)
	i := 0
	for ; i < len(rs) && rs[i].End < r.Start; i++ {
		out = append(out, rs[i])
	}
	for ; i < len(rs) && rs[i].Start <= r.End; i++ {
		r.Start, r.End = min(r.Start, rs[i].Start), max(r.End, rs[i].End)
	}
	out = append(out, r)
	return append(out, rs[i:]...)
}

// missing returns the missing ranges of a file of the given size, in order. No range has more than piece bytes.
func (rs ranges) missing(size, piece int64) []hub.Range {
	var out []hub.Range
	from := int64(0)
	for _, r := range append(slices.Clone(rs), hub.Range{Start: size, End: size}) {
		for from < r.Start {
			to := min(from+piece, r.Start)
			out = append(out, hub.Range{Start: from, End: to})
			from = to
		}
		from = max(from, r.End)
	}
	return out
}

// prefix returns the number of bytes before the first gap.
func (rs ranges) prefix() int64 {
	if len(rs) == 0 || rs[0].Start != 0 {
		return 0
	}
	return rs[0].End
}

// end returns the offset after the last byte of the set.
func (rs ranges) end() int64 {
	if len(rs) == 0 {
		return 0
	}
	return rs[len(rs)-1].End
}

// sum returns the number of bytes in the set.
func (rs ranges) sum() int64 {
	var n int64
	for _, r := range rs {
		n += r.Len()
	}
	return n
}

// valid reports whether the set is in canonical form and lies within a file of the given size.
func (rs ranges) valid(size int64) bool {
	last := int64(-1)
	for _, r := range rs {
		if r.Start <= last || r.End <= r.Start || r.End > size {
			return false
		}
		last = r.End
	}
	return true
}
