// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const help = `----- params -----

-h,    --help                           print usage and exit
-c,    --ctx-size N                     size of the context, -1 for all
                                        --not-an-option in the text
--jinja, --no-jinja                     templates
-mode, --mode {a,b}                     mode
-f1.5, --fim-1.5b                       dots
--old N                                 the argument has been removed. use --mode
`

const argparse = `usage: toy serve [options]

options:
  -h, --help            show this help message and exit
  --size SIZE, -s SIZE  size, as in
                        --size 3, --no-such-flag
  --fast, --no-fast, -f
                        fast
  --mode {a,b,c}        mode
  --long-name-of-a-flag LONG_NAME_OF_A_FLAG

Config:
  Groups have a text of their own - with dashes.

  --names NAMES [NAMES ...]
  --quiet
`

// A small sample in the form of vLLM's sources.
const parser = `
def add_cli_args(parser):
    """Not an option: parser.add_argument("--not-this")"""
    group = parser.add_argument_group(title="Group")
    group.add_argument("--size", "-s", **kwargs["size"])
    group.add_argument(
        "--fast",
        **kwargs["fast"],
    )
    if more:
        group.add_argument("--fast", action="store_true", help="as in --no-fast")
`

const frontend = `
@config
class BaseFrontendArgs:
    """Fields.

    text: of documentation
    """

    chat_template: str | None = None
    """Path.
    field: of documentation"""
    log_level: Literal[
        "info", "debug"
    ] = "info"

    @classmethod
    def add(cls, parser):
        name: str = "not_an_option"
        return parser


class Other:
    other: int = 0


class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
`

func TestSources(t *testing.T) {
	for _, tc := range []struct {
		reason, flags string
		sources       map[string]string
		code          int
		out, errs     string
	}{
		{
			reason:  "the same; what switches a flag off is not compared",
			flags:   `{size: {aliases: [s]}, fast: {negations: [no-fast]}, chat-template: {}, log-level: {}, port: {}}`,
			sources: map[string]string{"a.py": parser, "b.py": frontend},
		},
		{
			reason:  "a new flag, a gone one, and one with another alias",
			flags:   `{size: {aliases: [z]}, chat-template: {}, log-level: {}, port: {}, old: {}}`,
			sources: map[string]string{"a.py": parser, "b.py": frontend},
			code:    1,
			out:     "only in the engine: fast\nonly in the engine: s, size\nonly in the preset: old\nonly in the preset: size, z\n",
		},
		{
			reason: "a file without options", flags: `{}`, sources: map[string]string{"a.py": "x = 1\n"}, code: 2,
			errs: "engineflags: a.py registers no options: name files with add_argument calls or FrontendArgs classes\n",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Chdir(t.TempDir())
			args := []string{"engine.yaml"}
			files := map[string]string{"engine.yaml": "engines:\n- name: toy\n  flags: " + tc.flags + "\n"}
			maps.Copy(files, tc.sources)
			for name, text := range files {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args = append(args, slices.Sorted(maps.Keys(tc.sources))...)
			var out, errs bytes.Buffer
			if code := run(args, strings.NewReader(""), &out, &errs); code != tc.code {
				t.Errorf("ends with %d, want %d", code, tc.code)
			}
			if diff := cmp.Diff(tc.out, out.String()); diff != "" {
				t.Errorf("output: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.errs, errs.String()); diff != "" {
				t.Errorf("errors: -want +got:\n%s", diff)
			}
		})
	}
}

func TestRun(t *testing.T) {
	for _, tc := range []struct {
		reason, flags, help string
		code                int
		out, errs           string
	}{
		{
			reason: "the same",
			flags:  `{help: {aliases: [h]}, ctx-size: {aliases: [c]}, jinja: {negations: [no-jinja]}, mode: {}, fim-1.5b: {aliases: [f1.5]}}`,
			help:   help,
		},
		{
			reason: "a new flag, a gone one, and one with another spelling",
			flags:  `{help: {aliases: [h]}, ctx-size: {}, jinja: {negations: [no-jinja]}, fim-1.5b: {aliases: [f1.5]}, swap: {}}`,
			help:   help,
			code:   1,
			out: "only in the engine: c, ctx-size\nonly in the engine: mode\n" +
				"only in the preset: ctx-size\nonly in the preset: swap\n",
		},
		{
			reason: "argparse's form: aliases, negations, choices and lists with a metavar each, text beside and below",
			flags:  `{size: {aliases: [s]}, fast: {negations: [no-fast], aliases: [f]}, mode: {}, names: {}, quiet: {}, long-name-of-a-flag: {}}`,
			help:   argparse,
		},
		{
			reason: "argparse's form: an alias that is new and a flag that is gone",
			flags:  `{size: {}, fast: {negations: [no-fast], aliases: [f]}, mode: {}, names: {}, quiet: {}, long-name-of-a-flag: {}, old: {}}`,
			help:   argparse,
			code:   1,
			out:    "only in the engine: s, size\nonly in the preset: old\nonly in the preset: size\n",
		},
		{
			reason: "no help", flags: `{}`, help: "command not found\n", code: 2,
			errs: "engineflags: standard input lists no options: pipe the engine's --help into this command\n",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "engine.yaml")
			if err := os.WriteFile(path, []byte("engines:\n- name: toy\n  flags: "+tc.flags+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			if code := run([]string{path}, strings.NewReader(tc.help), &out, &errs); code != tc.code {
				t.Errorf("ends with %d, want %d", code, tc.code)
			}
			if diff := cmp.Diff(tc.out, out.String()); diff != "" {
				t.Errorf("output: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.errs, errs.String()); diff != "" {
				t.Errorf("errors: -want +got:\n%s", diff)
			}
		})
	}
}
