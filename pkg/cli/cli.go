// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/modelberth/modelberth/presets"
)

// World is what the command needs of the process it runs in.
type World struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Presets are the files of the catalogue.
	Presets fs.FS
	// Terminal says that Out is a terminal that shows colours.
	Terminal bool
	// Hub returns what describes models that the catalogue does not have.
	Hub func(endpoint, token string) (Describer, error)
}

// Process is the world of a real process.
func Process(in io.Reader, out *os.File, err io.Writer, getenv func(string) string) World {
	return World{
		In: in, Out: out, Err: err, Getenv: getenv, Presets: presets.FS(), Hub: newHub,
		Terminal: term.IsTerminal(int(out.Fd())) && getenv("TERM") != "dumb",
	}
}

// Main runs the command and returns its exit code.
func Main(ctx context.Context, args []string, w World) int {
	root := New(w)                            //nolint:contextcheck // cobra hands the context to the commands
	root.SetArgs(append([]string{}, args...)) // cobra takes nil for the process's own
	failed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return codeDone
	}
	if text := oneLine(err); text != "" {
		fmt.Fprintf(w.Err, "%s: %s\n", failed.CommandPath(), text)
	}
	return codeOf(err)
}

// New returns the command with everything below it.
func New(w World) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-berth",
		Short: "Which machines serve a model, at which price, and why",
		Long: `Which machines serve a model, at which price, and why.

Nothing here needs a cluster, and nothing is bought: the answers come from the same planner and
catalogue as the controller's.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl berth"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(w.In)
	root.SetOut(w.Out)
	root.SetErr(w.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		newPlan(w), newEstimate(w), newDiff(w), newModels(w), newSKUs(w), newGPUs(w), newVersion(w),
	)
	return root
}
