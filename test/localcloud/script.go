// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/script"
)

func newScriptCommand(state *stateFlag) *cobra.Command {
	var reset bool
	cmd := &cobra.Command{
		Use:   "script [FILE]",
		Short: "Show, set or clear the script of the cloud's faults; - is the standard input",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := state.layout()
			if err != nil {
				return err
			}
			switch {
			case reset && len(args) > 0:
				return fmt.Errorf("--clear and the script %s cannot be combined: leave one out", args[0])
			case reset:
				return clearScript(l)
			case len(args) > 0:
				return setScript(l, args[0], cmd.InOrStdin())
			}
			current, err := cloud.NewClient(l.Socket()).Script(cmd.Context())
			if err != nil {
				return fmt.Errorf("reading the script of the cloud in %s: %w", l.Root, err)
			}
			return printScript(cmd.OutOrStdout(), current)
		},
	}
	cmd.Flags().BoolVar(&reset, "clear", false, "end all faults, except those of machines that exist already")
	return cmd
}

func clearScript(l layout.Layout) error {
	if err := os.Remove(l.Script()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clearing the script: %w", err)
	}
	return nil
}

// setScript checks a script and puts it, whole, into the cloud's place for it.
func setScript(l layout.Layout, file string, in io.Reader) error {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return fmt.Errorf("reading the script: %w", err)
	}
	if _, err := script.Parse(data); err != nil {
		return fmt.Errorf("script %s: %w", file, err)
	}
	draft := l.Script() + ".new"
	if err := os.WriteFile(draft, data, 0o600); err != nil {
		return fmt.Errorf("setting the script (is a cloud up in %s?): %w", l.Root, err)
	}
	if err := os.Rename(draft, l.Script()); err != nil {
		return fmt.Errorf("setting the script: %w", err)
	}
	return nil
}

func printScript(out io.Writer, state cloud.ScriptState) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tSKU\tZONE\tCAPACITY\tOUTCOME\tSPEAKS\tATTEMPTS\tMET")
	for i, rule := range state.Script.Rules {
		speaks := cmp.Or(rule.Cloud, state.Script.Cloud, "-")
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d%s\n", i, cmp.Or(rule.SKU, "*"), cmp.Or(rule.Zone, "*"), cmp.Or(rule.CapacityType, "*"),
			strings.TrimSpace(string(rule.Outcome)+" "+rule.Kind), speaks, state.Counts[i].Attempts, state.Counts[i].Met, bound(rule))
	}
	return table.Flush()
}

// bound renders a rule's greatest number of uses, if it has one.
func bound(rule script.Rule) string {
	if rule.Times == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", rule.Times)
}
