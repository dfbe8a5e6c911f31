// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// Merge merges the user's settings into ours. A setting that both lists have keeps our place and gets the user's value.
// The user's other settings follow ours.
func Merge(ours, users []Setting) []Setting {
	return over(ours, users, func(s Setting) string { return s.Name })
}

// over replaces our entries by the user's entries with the same name, and appends the rest.
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

// Render returns settings as arguments in exec form: a flag and its values are separate arguments.
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
