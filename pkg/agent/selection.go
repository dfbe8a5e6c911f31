// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"flag"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Selection selects files of a repository by patterns. The patterns have the syntax of path.Match and apply to the
// whole path. It is empty if the files are named one by one.
type Selection struct {
	// Weights must match at least one file; Include may match none.
	Weights []string `json:"weights,omitempty"`
	Include []string `json:"include,omitempty"`
	// Exclude takes precedence over both.
	Exclude []string `json:"exclude,omitempty"`
}

func (s Selection) isEmpty() bool { return len(s.Weights)+len(s.Include)+len(s.Exclude) == 0 }

// reaches reports whether a pattern may match files in a directory, or below it.
func (s Selection) reaches(dir string) bool {
	depth := strings.Count(dir, "/") + 1
	return slices.ContainsFunc(slices.Concat(s.Weights, s.Include), func(pattern string) bool {
		parts := strings.Split(pattern, "/")
		return len(parts) > depth && matches([]string{strings.Join(parts[:depth], "/")}, dir)
	})
}

// define adds the flags for patterns of files.
func (s *Selection) define(flags *flag.FlagSet) {
	for _, f := range []struct {
		name, usage string
		into        *[]string
	}{
		{"weights", "`PATTERN` of required files in the repository, instead of --file; at least one file must match; repeatable", &s.Weights},
		{"include", "`PATTERN` of optional files; repeatable", &s.Include},
		{"exclude", "`PATTERN` of files to leave out; repeatable", &s.Exclude},
	} {
		flags.Func(f.name, f.usage, func(v string) error {
			if _, err := path.Match(v, ""); err != nil || v == "" {
				return fmt.Errorf("%q is not a pattern such as *.safetensors", v)
			}
			*f.into = append(*f.into, v)
			return nil
		})
	}
}

// matches reports whether a pattern matches a file. It ignores invalid patterns, because check has refused them.
func matches(patterns []string, file string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, file)
		return ok && err == nil
	})
}

// everything returns patterns for all contents of an artifact. A * does not match across directories, so there is a
// pattern for each depth.
func everything() []string { return []string{"*", "*/*", "*/*/*"} }

// literalPattern returns a pattern that matches only the given name.
func literalPattern(name string) string {
	return strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}
