// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// maxPath is the maximum length of a file's name in bytes.
const maxPath = 1024

// CheckPath refuses names that lead out of the volume, are ambiguous, or are reserved for the agent.
func CheckPath(p string) error {
	switch {
	case p == "" || len(p) > maxPath:
		return fmt.Errorf("%q is empty or longer than %d bytes", p, maxPath)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return fmt.Errorf("%q has a backslash or a control character", p)
	case !filepath.IsLocal(p) || path.Clean(p) != p || p == ".":
		return fmt.Errorf("%q is not a plain relative path, without \".\", \"..\" or a leading or double slash", p)
	}
	for _, suffix := range []string{partialSuffix, stateSuffix, markerSuffix, newSuffix, listingName, pinName} {
		if strings.HasSuffix(p, suffix) {
			return fmt.Errorf("%q ends in %q, a suffix reserved for the agent", p, suffix)
		}
	}
	return nil
}
