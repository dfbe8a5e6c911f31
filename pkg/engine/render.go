// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// Merge merges the user's settings into ours: in our place if both have one, after ours otherwise.
func Merge(ours, users []Setting) []Setting {
	return over(ours, users, func(s Setting) string { return s.Name })
}

// over puts the user's entries over ours by their names.
func over[T any](ours, users []T, name func(T) string) []T {
	merged := slices.Clone(ours)
	for _, entry := range users {
		at := slices.IndexFunc(ours, func(our T) bool { return name(our) == name(entry) })
		if at < 0 {
			merged = append(merged, entry)
			continue
		}
		merged[at] = entry
	}
	return merged
}

// Render writes settings as arguments in exec form, flag and values apart.
func Render(data catalog.Engine, settings []Setting) []string {
	var args []string
	for _, setting := range settings {
		flag := data.Flags[setting.Name]
		switch {
		case flag.Many:
			args = append(append(args, "--"+setting.Name), strings.Fields(setting.Value)...)
		case flag.Kind != catalog.FlagBool:
			args = append(args, "--"+setting.Name, setting.Value)
		case setting.Value == "true":
			args = append(args, "--"+setting.Name)
		case len(flag.Negations) > 0:
			args = append(args, "--"+flag.Negations[0])
		}
	}
	return args
}
