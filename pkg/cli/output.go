// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The output formats.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// output is the format of an answer.
type output struct {
	format string
}

// bind declares -o. wide adds the wide form.
func (o *output) bind(cmd *cobra.Command, wide bool) {
	formats := []string{formatTable, formatJSON, formatYAML}
	if wide {
		formats = []string{formatTable, formatWide, formatJSON, formatYAML}
	}
	cmd.Flags().StringVarP(&o.format, "output", "o", formatTable, "output format: "+strings.Join(formats, ", "))
	complete(cmd, "output", func() []string { return formats })
	previous := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := oneOf("--output", o.format, formats); err != nil {
			return err
		}
		if previous == nil {
			return nil
		}
		return previous(cmd, args)
	}
}

// forPrograms reports whether the output is data.
func (o *output) forPrograms() bool { return o.format == formatJSON || o.format == formatYAML }

func (o *output) wide() bool { return o.format == formatWide }

// data writes a value as JSON or YAML.
func (o *output) data(w io.Writer, value any) error {
	if o.format == formatYAML {
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// table writes rows in columns. The first row has the headings. prefix precedes each row.
func table(w io.Writer, prefix string, rows [][]string) error {
	var aligned strings.Builder
	t := tabwriter.NewWriter(&aligned, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(aligned.String()) {
		if _, err := fmt.Fprintln(w, prefix+strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// complete offers values for a flag to a shell.
func complete(cmd *cobra.Command, flag string, values func() []string) {
	// The only error is a missing flag: a mistake in the code that shows at each use of the command.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
}

// oneOf refuses an unknown value of a flag.
func oneOf(flag, value string, values []string) error {
	if slices.Contains(values, value) {
		return nil
	}
	return usageError("%s: %q is not supported: use %s", flag, value, orList(values))
}

// orList joins values for a sentence, with "or" before the last.
func orList(values []string) string {
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}
