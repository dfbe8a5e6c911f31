// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime/debug"
	"testing"
)

// TestVersionOf tests the three sources of a version: the release's linker, the module from go install, the source
// tree.
func TestVersionOf(t *testing.T) {
	for _, test := range []struct {
		reason, release string
		info            *debug.BuildInfo
		want            string
	}{
		{"a release, built from a commit without a tag", "v0.1.0", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "v0.1.0"},
		{"go install …@v0.1.0", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, "v0.1.0"},
		{"go build without version control", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "(devel)"},
		{"a program without build information", "", nil, "unknown"},
	} {
		if got := versionOf(test.release, test.info); got != test.want {
			t.Errorf("%s: %q, want %q", test.reason, got, test.want)
		}
	}
}
