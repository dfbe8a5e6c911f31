// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/pkg/doctor"
)

// doctorCommand is kubectl berth doctor.
type doctorCommand struct {
	connection
	output

	bundle string
}

// diagnosis is the command's answer for programs.
type diagnosis struct {
	Version  string           `json:"version"`
	Objects  int              `json:"objects"`
	Findings []doctor.Finding `json:"findings"`
}

func newDoctor(w World) *cobra.Command {
	d := &doctorCommand{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems in a cluster, with evidence and the command to fix each",
		Long: `Find problems in a cluster: Modelberth's controller, its permissions and CustomResourceDefinitions, Karpenter
and its NodeClasses, GPU plugins and drivers, nodes, network, DNS, webhooks, volumes, quotas, clocks, and
remains of deleted Workspaces. The command reads with your permissions, and neither changes nor starts anything
in the cluster.

Exit codes: 0 without errors, 1 with a finding of severity error, 2 if the cluster cannot be checked. The
warning NotChecked lists objects that you may not read.

The support bundle is a tar.gz with the findings, the objects, and the controller's settings, such as its spending
ceilings. Of a ConfigMap with settings, it has every key, but only values that are valid settings. It has no Secrets, no
other ConfigMaps, no values of environment variables, and no query strings of URLs. Review it before you send it.`,
		Example: `  kubectl berth doctor
  kubectl berth doctor -o json
  kubectl berth doctor --support-bundle support.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context(), w) },
	}
	cmd.Flags().StringVar(&d.bundle, "support-bundle", "", "also write a support bundle to this file")
	d.connection.bind(cmd, w)
	d.output.bind(cmd, false)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (d *doctorCommand) run(ctx context.Context, w World) error {
	cluster, err := d.open()
	if err != nil {
		return err
	}
	seen, err := cluster.snapshot(ctx)
	if err != nil {
		return &exitError{code: codeUnchecked, err: err}
	}
	findings := doctor.Examine(seen)
	if d.bundle != "" {
		seen.Settings = cluster.settings(ctx, seen.SettingsConfigMaps(), w.Settings)
		if err := writeBundle(d.bundle, seen, findings); err != nil {
			return usageError("--support-bundle: %w", err)
		}
	}
	if d.forPrograms() {
		err = d.data(w.Out, diagnosis{
			Version: seen.Version, Objects: len(seen.Objects),
			Findings: append([]doctor.Finding{}, findings...),
		})
	} else {
		err = showFindings(w, seen, findings)
	}
	if err != nil {
		return err
	}
	if numberOf(findings, doctor.Error) > 0 {
		return sick()
	}
	return nil
}

// writeBundle writes a support bundle that only the user can read.
func writeBundle(path string, seen *doctor.Snapshot, findings []doctor.Finding) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = doctor.WriteBundle(file, seen, findings)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// isAlike reports whether two findings differ only in their object.
func isAlike(a, b *doctor.Finding) bool {
	return a.ID == b.ID && a.Severity == b.Severity && a.Evidence == b.Evidence && a.Fix == b.Fix
}

// showFindings writes findings for people. Findings that differ only in their object share one explanation.
func showFindings(w World, seen *doctor.Snapshot, findings []doctor.Finding) error {
	s := newStyle(w)
	width, _ := w.size()
	for i := 0; i < len(findings); {
		f := &findings[i]
		color := yellow
		if f.Severity == doctor.Error {
			color = red
		}
		for ; i < len(findings) && isAlike(&findings[i], f); i++ {
			head := s.paint(color, fmt.Sprintf("%-7s", f.Severity)) + " " + s.paint(bold, f.ID) + " " + findings[i].Object
			fmt.Fprintln(w.Out, strings.TrimRight(head, " "))
		}
		for _, line := range chopped(f.Evidence, max(width-8, narrowest)) {
			fmt.Fprintln(w.Out, "        "+line)
		}
		fmt.Fprintln(w.Out, "        → "+f.Fix)
	}
	return conclude(w.Out, seen, findings)
}

// conclude writes the summary in the last line.
func conclude(out io.Writer, seen *doctor.Snapshot, findings []doctor.Finding) error {
	result := "no findings"
	if len(findings) > 0 {
		result = count(numberOf(findings, doctor.Error), "error") + ", " + count(numberOf(findings, doctor.Warning), "warning")
	}
	_, err := fmt.Fprintf(out, "%s in %d objects of a cluster with Kubernetes %s\n", result, len(seen.Objects), seen.Version)
	return err
}

// numberOf returns the number of findings with a severity.
func numberOf(findings []doctor.Finding, severity doctor.Severity) int {
	n := 0
	for i := range findings {
		if findings[i].Severity == severity {
			n++
		}
	}
	return n
}
