// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"strconv"
	"strings"
)

// generationOne is the last release that logs called by the name of the engine's generation, V0 or V1:
// from then on there was one alone.
const generationOne = "0.11"

// IsRelease says whether a text names a release of an engine, such as 0.11, v0.10.1 or ~0.11.
func IsRelease(version string) bool {
	number := release(version)
	return number != "" && number[0] != '.'
}

// release returns the number of the release in a text: digits and dots, without words around it. It is empty for a
// text without digits.
func release(version string) string {
	begin := strings.IndexAny(version, "0123456789")
	if begin < 0 {
		return ""
	}
	number := version[begin:]
	if end := strings.IndexFunc(number, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		number = number[:end]
	}
	number = strings.TrimRight(number, ".")
	if begin > 0 && (number == "0" || number == "1") && strings.ContainsRune("vV", rune(version[begin-1])) {
		if after := release(version[begin+1:]); strings.Contains(after, ".") {
			return after
		}
		return generationOne
	}
	return number
}

// older reports whether a release comes before another one. A text without a number counts as the newest.
func older(version, than string) bool {
	version = release(version)
	if version == "" {
		return false
	}
	for than != "" {
		var v, t string
		v, version, _ = strings.Cut(version, ".")
		t, than, _ = strings.Cut(than, ".")
		number, _ := strconv.Atoi(v)
		if other, _ := strconv.Atoi(t); number != other {
			return number < other
		}
	}
	return false
}
