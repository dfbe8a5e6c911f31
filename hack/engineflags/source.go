// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// parseSource reads options from Python source in vLLM's style: calls of add_argument with the spellings as literals,
// and classes named …FrontendArgs with an option in each field. It does not detect options with a negation.
func parseSource(text string) []option {
	// Strings over several lines are documentation, which may look like options.
	text = regexp.MustCompile(`(?s)""".*?"""`).ReplaceAllString(text, "")
	var options []option
	literal := regexp.MustCompile(`"--?([A-Za-z][\w-]*)"`)
	for _, call := range regexp.MustCompile(`\.add_argument\(\s*("-[\w-]+"(?:,\s*"-[\w-]+")*)`).FindAllStringSubmatch(text, -1) {
		var names []string
		for _, match := range literal.FindAllStringSubmatch(call[1], -1) {
			names = append(names, match[1])
		}
		options = append(options, newOption(names))
	}
	return append(options, fields(text)...)
}

// fields reads the fields of option classes, up to their first method.
func fields(text string) []option {
	class := regexp.MustCompile(`^class \w*FrontendArgs\b`)
	field := regexp.MustCompile(`^ {4}([a-z]\w*): `)
	var options []option
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case class.MatchString(line):
			inside = true
		case strings.HasPrefix(line, "    @") || strings.HasPrefix(line, "    def ") || regexp.MustCompile(`^\S`).MatchString(line):
			inside = false
		}
		if match := field.FindStringSubmatch(line); inside && match != nil {
			options = append(options, option{strings.ReplaceAll(match[1], "_", "-")})
		}
	}
	return options
}

// withoutNegations returns the preset's flags without negations, which source does not show.
func withoutNegations(flags map[string]catalog.Flag) map[string]catalog.Flag {
	flags = maps.Clone(flags)
	for name, flag := range flags {
		flag.Negations = nil
		flags[name] = flag
	}
	return flags
}

// distinct removes duplicates from several files or branches.
func distinct(options []option) []option {
	slices.SortFunc(options, slices.Compare)
	return slices.CompactFunc(options, slices.Equal)
}
