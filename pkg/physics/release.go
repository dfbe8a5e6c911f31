// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import "strings"

// generationOne is the last release that logs named after the engine's generation, V0 or V1. Later releases have only
// one generation.
const generationOne = "0.11"

// IsRelease reports whether a text is the name of an engine's release, such as 0.11, v0.10.1 or ~0.11.
func IsRelease(version string) bool {
	number := release(version)
	return number != "" && number[0] != '.'
}

// release returns the number of a release in a text: its digits and dots. It is empty for a text without digits.
func release(version string) string {
	begin := 0
	for begin < len(version) && (version[begin] < '0' || version[begin] > '9') {
		begin++
	}
	if begin == len(version) {
		return ""
	}
	number := version[begin:]
	for i := range len(number) {
		if c := number[i]; c != '.' && (c < '0' || c > '9') {
			number = number[:i]
			break
		}
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

// older reports whether a release is older than another one. A text without a number counts as the newest.
func older(version, than string) bool {
	version = release(version)
	if version == "" {
		return false
	}
	for than != "" {
		var number, other int
		number, version = leading(version)
		if other, than = leading(than); number != other {
			return number < other
		}
	}
	return false
}

// leading returns the number before the first dot of a release, 0 if there is none, and the text after the dot. It
// allocates nothing, because a plan compares releases thousands of times.
func leading(release string) (number int, rest string) {
	for i := range len(release) {
		digit := release[i]
		if digit == '.' {
			return number, release[i+1:]
		}
		if digit < '0' || digit > '9' {
			_, rest, _ = strings.Cut(release[i:], ".")
			return 0, rest
		}
		number = 10*number + int(digit-'0')
	}
	return number, ""
}
