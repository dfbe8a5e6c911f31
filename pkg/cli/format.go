// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/usd"
)

// none marks a missing figure in tables.
const none = "-"

const (
	gib     = 1 << 30
	billion = 1e9
)

// dollars formats a price per hour for a table with the unit in its header; none if unknown.
func dollars(price float64) string {
	if price < 0 {
		return none
	}
	return usd.Number(price)
}

// digits formats a figure with three significant digits and without an exponent.
func digits(value float64) string {
	if value < 0 {
		return none
	}
	return usd.SignificantNumber(value)
}

// millis formats a time in milliseconds.
func millis(value float64) string {
	if value >= 1000 {
		return digits(value/1000) + " s"
	}
	return digits(value) + " ms"
}

// number formats an optional whole number.
func number(n int) string {
	if n == 0 {
		return none
	}
	return strconv.Itoa(n)
}

// tokens formats a context length.
func tokens(n int) string {
	switch {
	case n == 0:
		return none
	case n%1024 == 0:
		return fmt.Sprintf("%dK", n/1024)
	default:
		return strconv.Itoa(n)
	}
}

// params formats a number of parameters.
func params(n int64) string {
	if n == 0 {
		return none
	}
	return digits(float64(n)/billion) + "B"
}

// text returns a text for a table; none if empty.
func text(s string) string {
	if s == "" {
		return none
	}
	return s
}

// yesNo formats a boolean for a table.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// count formats a number of things, with the plural if needed.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// folded breaks a text at spaces into lines of at most width characters.
func folded(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
