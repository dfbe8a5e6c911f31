// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"path"
	"strings"
)

// The character sets of names.
const (
	digits      = "0123456789"
	lowercase   = "abcdefghijklmnopqrstuvwxyz"
	uppercase   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	punctuation = "._-"
)

// madeOf reports whether a text is not empty, not longer than a limit and has no other characters.
func madeOf(text, characters string, longest int) bool {
	return text != "" && len(text) <= longest && strings.Trim(text, characters) == ""
}

// isName is for names with upper and lower case, such as instance types.
func isName(text string) bool {
	return madeOf(text, digits+lowercase+uppercase+punctuation, 128) && !strings.ContainsAny(text[:1], punctuation)
}

// isLowerName is for lower-case names, such as models.
func isLowerName(text string) bool {
	return isName(text) && strings.ToLower(text) == text
}

// isRepo is for ids of a hub, org/name.
func isRepo(text string) bool {
	org, name, ok := strings.Cut(text, "/")
	return ok && isName(org) && isName(name)
}

// isRevision is for branches, tags and commits.
func isRevision(text string) bool {
	return madeOf(text, digits+lowercase+uppercase+punctuation+"/", 128) && !strings.ContainsAny(text[:1], punctuation+"/")
}

// isCapability is for compute capabilities, major.minor.
func isCapability(text string) bool {
	major, minor, ok := strings.Cut(text, ".")
	return ok && madeOf(major, digits, 2) && madeOf(minor, digits, 1)
}

// isReleaseNumber is for an engine's release from or until which a fact holds.
func isReleaseNumber(text string) bool {
	return madeOf(text, digits+".", 16) && !strings.HasPrefix(text, ".") && !strings.HasSuffix(text, ".")
}

// isSHA256 is for digests in lower-case hexadecimal digits.
func isSHA256(text string) bool {
	return len(text) == 64 && madeOf(text, digits+"abcdef", 64)
}

// isDate is for dates, year-month-day.
func isDate(text string) bool {
	parts := strings.Split(text, "-")
	return len(parts) == 3 && len(parts[0]) == 4 && len(parts[1]) == 2 && len(parts[2]) == 2 &&
		madeOf(strings.Join(parts, ""), digits, 8)
}

// isResource is for extended resources, domain/name.
func isResource(text string) bool {
	domain, name, ok := strings.Cut(text, "/")
	return ok && isLowerName(domain) && isName(name)
}

// isFilePath reports whether a path stays within a repository and is written plainly.
func isFilePath(p string) bool {
	return madeOf(p, digits+lowercase+uppercase+punctuation+"/+@=,()", 512) &&
		path.Clean(p) == p && !path.IsAbs(p) && p != "." && p != ".." && !strings.HasPrefix(p, "../")
}
