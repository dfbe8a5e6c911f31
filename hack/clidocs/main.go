// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command clidocs writes the reference of kubectl-berth from its commands. It decides the page's layout; its text
// about a command is the command's own help.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/presets"
)

const intro = `# kubectl berth

Plans and explains without a cluster and without buying anything, and looks after Workspaces in one ([how to](../using.md)). ` + "`make kubectl-berth`" + ` builds bin/kubectl-berth; in a directory of ` + "`PATH`" + `, kubectl finds it, and ` + "`kubectl berth plan`" + ` and ` + "`kubectl-berth plan`" + ` are the same. This page is made by ` + "`make generate`" + `.

## Exit codes

| code | meaning |
|---|---|
| 0 | done; of ` + "`diff`" + `: nothing would change in the cluster |
| 1 | of ` + "`diff`" + `: something would change; of ` + "`status --watch`" + `: the Workspace is stalled |
| 2 | a flag, a file, a field or a name is wrong |
| 3 | nothing serves what was asked for: it does not fit, it is above a limit, or this version cannot do it |
| 4 | the hub did not describe the model: it is unknown there, gated, or the hub is away |
| 5 | the cluster or the model's server did not do what was asked for, or not in time |

What is wrong is one line on the error stream.

## For programs

` + "`-o json` and `-o yaml`" + ` print data alone. A plan has the fields of a Workspace's ` + "`status.plan`" + ` ([API](api.md)), with an empty ` + "`revision`" + `; of a file with several Workspaces it is a list of ` + "`namespace`, `name` and `plan`" + `. Colours are for terminals only, and never where ` + "`NO_COLOR`" + ` is set.

## Completion

` + "`kubectl-berth completion bash`" + ` (or zsh, fish, powershell) prints a script for ` + "`kubectl-berth`" + `. For ` + "`kubectl berth`" + `, put this into a directory of ` + "`PATH`" + ` as an executable ` + "`kubectl_complete-berth`" + `:

` + "```sh" + `
#!/bin/sh
exec kubectl-berth __complete "$@"
` + "```" + `

`

func main() {
	out := flag.String("out", "docs/reference/cli.md", "the page to write")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "clidocs:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	root := cli.New(cli.World{
		In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Presets: presets.FS(),
		Getenv: func(string) string { return "" },
	})
	var page bytes.Buffer
	page.WriteString(intro)
	for _, command := range root.Commands() {
		if err := describe(&page, command); err != nil {
			return fmt.Errorf("describing %s: %w", command.CommandPath(), err)
		}
	}
	return os.WriteFile(path, append(bytes.TrimSpace(page.Bytes()), '\n'), 0o644)
}

// describe writes the section of one command. The links to other commands are left out: the page is short.
func describe(page *bytes.Buffer, command *cobra.Command) error {
	var section bytes.Buffer
	command.DisableAutoGenTag = true
	if err := doc.GenMarkdownCustom(command, &section, filepath.Base); err != nil {
		return err
	}
	text, _, _ := strings.Cut(section.String(), "### SEE ALSO")
	page.WriteString(text)
	return nil
}
