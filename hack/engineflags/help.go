// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
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

// parseHelp reads the entries that begin at the start of a line, as in "-c,  --ctx-size N   text", and
// leaves out those that only say that they were removed.
func parseHelp(r io.Reader) ([]option, error) {
	spelling := regexp.MustCompile(`^ *--?([A-Za-z][\w.-]*)(,?)`)
	var options []option
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		line := scanner.Text()
		if !strings.HasPrefix(line, "-") || strings.Contains(line, "argument has been removed") {
			continue
		}
		var names option
		for {
			match := spelling.FindStringSubmatch(line)
			if match == nil {
				break
			}
			names = append(names, match[1])
			line = line[len(match[0]):]
			if match[2] == "" {
				break
			}
		}
		if len(names) > 0 {
			slices.Sort(names)
			options = append(options, slices.Compact(names))
		}
	}
	return options, scanner.Err()
}

// compare tells what the help has and the preset lacks, and the other way round.
func compare(flags map[string]catalog.Flag, options []option) []string {
	listed := map[string]string{}
	for name, flag := range flags {
		spellings := slices.Concat([]string{name}, flag.Aliases, flag.Negations)
		slices.Sort(spellings)
		listed[strings.Join(spellings, ", ")] = name
	}
	var differences []string
	for _, option := range options {
		key := strings.Join(option, ", ")
		if _, known := listed[key]; !known {
			differences = append(differences, fmt.Sprintf("only in the help: %s", key))
		}
		delete(listed, key)
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		differences = append(differences, fmt.Sprintf("only in the preset: %s", key))
	}
	return differences
}
