// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
)

// style colours text on a terminal, and leaves it as it is elsewhere.
type style struct{ colours bool }

// newStyle honours NO_COLOR: any value but an empty one turns colours off.
func newStyle(w World) style {
	return style{colours: w.Terminal && w.Getenv("NO_COLOR") == ""}
}

// ANSI codes for colours and weights.
const (
	bold    = "1"
	dim     = "2"
	red     = "31"
	green   = "32"
	yellow  = "33"
	blue    = "34"
	magenta = "35"
)

func (s style) paint(code, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// page is text for a person.
type page struct {
	w io.Writer
	style
}

// line writes one line. Closing the page reports a failed write.
func (p page) line(format string, args ...any) {
	fmt.Fprintln(p.w, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// heading writes the heading of a section.
func (p page) heading(text string) {
	p.line("")
	p.line("%s", p.paint(bold, text))
}

// pageWidth is the width of folded text.
const pageWidth = 100

// point writes a sentence with a mark before it, folded.
func (p page) point(mark, text string) {
	for i, line := range folded(text, pageWidth-4) {
		if i > 0 {
			mark = " "
		}
		p.line("  %s %s", mark, line)
	}
}

// fact writes a name and its text, folded.
func (p page) fact(name, text string) {
	const indent = 12
	for i, line := range folded(text, pageWidth-indent-2) {
		if i > 0 {
			name = ""
		}
		p.line("  %s%s", p.paint(dim, fmt.Sprintf("%-*s", indent, name)), line)
	}
}
