// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package args

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed flags.txt
var text string

// Kind is the form of a flag's value.
type Kind string

// The kinds.
const (
	Switch Kind = "switch"
	Bool   Kind = "bool"
	Int    Kind = "int"
	Float  Kind = "float"
	String Kind = "str"
	JSON   Kind = "json"
	Size   Kind = "size"
	Auto   Kind = "auto"
	Text   Kind = "text"
)

// Flag is one line of the table.
type Flag struct {
	Name    string
	Aliases []string
	Kind    Kind
	// Many takes one or more values, Maybe none or one; Repeats may be given several times.
	Many, Maybe, Repeats bool
	// Values are all possible values, unless empty.
	Values []string
}

// Table is the flags in the order of vLLM's source.
func Table() ([]Flag, error) {
	var table []Flag
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("flags.txt line %d: %q has no kind", i+1, line)
		}
		names := strings.Split(fields[0], ",")
		kind := fields[1]
		bare := strings.TrimRight(kind, "+?@")
		table = append(table, Flag{
			Name: names[0], Aliases: names[1:], Kind: Kind(bare), Values: fields[2:],
			Many: strings.HasSuffix(kind, "+"), Maybe: strings.HasSuffix(kind, "?"), Repeats: strings.HasSuffix(kind, "@"),
		})
	}
	return table, nil
}

// takesNone reports whether the flag is there or not, without a value.
func (f Flag) takesNone() bool { return f.Kind == Switch || f.Kind == Bool }

// spelling is one way to write a flag.
type spelling struct {
	flag Flag
	off  bool
}

// spellings are all ways to write flags, with their dashes: one dash for a letter or an abbreviation.
func spellings(table []Flag) map[string]spelling {
	all := map[string]spelling{}
	for _, flag := range table {
		for _, option := range flag.options() {
			all[option] = spelling{flag: flag}
		}
		if flag.Kind == Bool {
			all["--no-"+flag.Name] = spelling{flag: flag, off: true}
		}
	}
	return all
}

func (f Flag) options() []string {
	options := []string{"--" + f.Name}
	for _, alias := range f.Aliases {
		if len(alias) > 3 {
			options = append(options, "--"+alias)
			continue
		}
		options = append(options, "-"+alias)
	}
	return options
}

// title is how argparse names the flag in its messages.
func (f Flag) title() string {
	options := f.options()
	if f.Kind == Bool {
		options = slices.Insert(options, 1, "--no-"+f.Name)
	}
	return strings.Join(options, "/")
}
