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

// madeOf reports whether a text consists of the given characters, has at least one, and at most the given number.
func madeOf(text, characters string, longest int) bool {
	return text != "" && len(text) <= longest && strings.Trim(text, characters) == ""
}

// isName accepts names in upper and lower case, such as instance types.
func isName(text string) bool {
	return madeOf(text, digits+lowercase+uppercase+punctuation, 128) && !strings.ContainsAny(text[:1], punctuation)
}

// isLowerName accepts lower-case names, such as models.
func isLowerName(text string) bool {
	return isName(text) && strings.ToLower(text) == text
}

// isRepo accepts IDs of a hub, org/name.
func isRepo(text string) bool {
	org, name, ok := strings.Cut(text, "/")
	return ok && isName(org) && isName(name)
}

// isRevision accepts branches, tags and commits.
func isRevision(text string) bool {
	return madeOf(text, digits+lowercase+uppercase+punctuation+"/", 128) && !strings.ContainsAny(text[:1], punctuation+"/")
}

// isCapability accepts compute capabilities, major.minor.
func isCapability(text string) bool {
	major, minor, ok := strings.Cut(text, ".")
	return ok && madeOf(major, digits, 2) && madeOf(minor, digits, 1)
}

// isReleaseNumber accepts releases of engines: digits and dots.
func isReleaseNumber(text string) bool {
	return madeOf(text, digits+".", 16) && !strings.HasPrefix(text, ".") && !strings.HasSuffix(text, ".")
}

// isSHA256 accepts digests in lower-case hexadecimal digits.
func isSHA256(text string) bool {
	return len(text) == 64 && madeOf(text, digits+"abcdef", 64)
}

// isDate accepts dates, year-month-day.
func isDate(text string) bool {
	parts := strings.Split(text, "-")
	return len(parts) == 3 && len(parts[0]) == 4 && len(parts[1]) == 2 && len(parts[2]) == 2 &&
		madeOf(strings.Join(parts, ""), digits, 8)
}

// isResource accepts extended resources, domain/name.
func isResource(text string) bool {
	domain, name, ok := strings.Cut(text, "/")
	return ok && isLowerName(domain) && isName(name)
}

// isFilePath reports whether a path is in its shortest form and stays within a repository.
func isFilePath(p string) bool {
	return madeOf(p, digits+lowercase+uppercase+punctuation+"/+@=,()", 512) &&
		path.Clean(p) == p && !path.IsAbs(p) && p != "." && p != ".." && !strings.HasPrefix(p, "../")
}
