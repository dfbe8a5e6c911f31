// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(w World) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(w.Out, version())
			return err
		},
	}
}

// release is the version of a released program, set by the linker (hack/release/cli.go).
var release string //nolint:gochecknoglobals // the linker sets variables alone

func version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(release, info)
}

// versionOf returns the version of the release, of the module from go install, or of the source tree; unknown without
// build information.
func versionOf(release string, info *debug.BuildInfo) string {
	switch {
	case release != "":
		return release
	case info != nil:
		return info.Main.Version
	default:
		return "unknown"
	}
}
