// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// option is one entry of a help text: its spellings without dashes, sorted.
type option []string

func newOption(names []string) option {
	slices.Sort(names)
	return slices.Compact(names)
}

// parseHelp parses a help text. In llama.cpp's form, entries begin at the start of a line. In the form of Python's
// argparse, they are indented.
func parseHelp(r io.Reader) ([]option, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	entry := argparseEntry
	if slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "-----") }) {
		entry = llamaEntry
	}
	var options []option
	for _, line := range lines {
		if names := entry(line); len(names) > 0 {
			options = append(options, newOption(names))
		}
	}
	return options, nil
}

// llamaEntry returns the spellings of an entry such as "-c,  --ctx-size N   text", and none for a removed flag.
func llamaEntry(line string) []string {
	spelling := regexp.MustCompile(`^ *--?([A-Za-z][\w.-]*)(,?)`)
	if !strings.HasPrefix(line, "-") || strings.Contains(line, "argument has been removed") {
		return nil
	}
	var names []string
	for {
		match := spelling.FindStringSubmatch(line)
		if match == nil {
			return names
		}
		names = append(names, match[1])
		if match[2] == "" {
			return names
		}
		line = line[len(match[0]):]
	}
}

// argparseEntry returns the spellings of an entry such as "  --size SIZE, -s SIZE  text". It skips the entry for help,
// which every program has.
func argparseEntry(line string) []string {
	const indent = "  "
	line, indented := strings.CutPrefix(line, indent)
	if !indented || !strings.HasPrefix(line, "-") {
		return nil
	}
	heading, _, _ := strings.Cut(line, "  ")
	var names []string
	for part := range strings.SplitSeq(heading, ", -") {
		name := strings.TrimLeft(strings.Fields(part)[0], "-")
		if name == "help" {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// compare lists the engine's options that the preset lacks, and the preset's flags that the engine lacks.
func compare(flags map[string]catalog.Flag, options []option) []string {
	listed := map[string]string{}
	for name, flag := range flags {
		spellings := newOption(slices.Concat([]string{name}, flag.Aliases, flag.Negations))
		listed[strings.Join(spellings, ", ")] = name
	}
	var differences []string
	for _, option := range options {
		key := strings.Join(option, ", ")
		if _, known := listed[key]; !known {
			differences = append(differences, fmt.Sprintf("only in the engine: %s", key))
		}
		delete(listed, key)
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		differences = append(differences, fmt.Sprintf("only in the preset: %s", key))
	}
	return differences
}
