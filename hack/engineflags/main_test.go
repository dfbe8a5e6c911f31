// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
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
			out: "only in the help: c, ctx-size\nonly in the help: mode\n" +
				"only in the preset: ctx-size\nonly in the preset: swap\n",
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
