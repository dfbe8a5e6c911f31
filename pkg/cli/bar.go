// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strings"
)

// barWidth is the number of characters for a GPU's memory.
const barWidth = 64

// share is a part of a GPU's memory, with its mark and colour.
type share struct {
	name string
	gib  float64
	mark string
	code string
}

// bar draws the parts of a whole, with a legend below. Each part has its own mark, so the bar is readable without
// colours.
func (p page) bar(total float64, parts []share) {
	var drawn strings.Builder
	var legend []string
	for i, width := range widths(total, parts) {
		part := parts[i]
		drawn.WriteString(p.paint(part.code, strings.Repeat(part.mark, width)))
		legend = append(legend, fmt.Sprintf("%s %s %.2f", p.paint(part.code, part.mark), part.name, part.gib))
	}
	p.line("  %s", drawn.String())
	p.line("  %s", strings.Join(legend, "   "))
}

// widths returns the number of characters for each part. They sum to barWidth if the parts sum to the total. Every part
// above zero gets at least one.
func widths(total float64, parts []share) []int {
	out := make([]int, len(parts))
	var before float64
	for i, part := range parts {
		from := int(math.Round(before / total * barWidth))
		before += max(part.gib, 0)
		out[i] = int(math.Round(min(before/total, 1)*barWidth)) - min(from, barWidth)
	}
	widest := 0
	for i := range out {
		if out[i] > out[widest] {
			widest = i
		}
	}
	for i, part := range parts {
		if out[i] == 0 && part.gib > 0 && out[widest] > 1 {
			out[i]++
			out[widest]--
		}
	}
	return out
}
