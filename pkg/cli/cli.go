// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/charts"
	"github.com/modelberth/modelberth/pkg/wording"
	"github.com/modelberth/modelberth/presets"
)

// World is the command's access to its process and to the outside.
type World struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Presets are the files of the catalogue.
	Presets fs.FS
	// Chart has the CustomResourceDefinitions and policies of this version.
	Chart fs.FS
	// Terminal reports whether Out is a terminal with colours.
	Terminal bool
	// Hub returns a describer of models outside the catalogue.
	Hub func(endpoint, token string) (Describer, error)
	// Cluster connects to the cluster that the flags select. It writes the API server's warnings to the writer.
	Cluster func(flags *genericclioptions.ConfigFlags, warnings io.Writer) (*Cluster, error)
	// Clock is the clock for ages and timers.
	Clock clock.WithTicker
	// Size of the terminal in columns and lines.
	Size func() (width, height int)
	// Typing reports whether In is a terminal.
	Typing bool
	// Interrupt returns a context. Ctrl-C cancels it and does not end the process.
	Interrupt func(context.Context) (context.Context, context.CancelFunc)
	// Settings describes the settings that a controller reads from a ConfigMap's data, without secrets.
	Settings func(data map[string]string) map[string]string
}

// Process returns the World of a real process.
func Process(in, out *os.File, err io.Writer, getenv func(string) string, settings func(map[string]string) map[string]string) World {
	return World{
		Settings: settings,
		In:       in, Out: out, Err: err, Getenv: getenv, Presets: presets.FS(), Chart: charts.FS(), Hub: newHub, Cluster: connect,
		Terminal: term.IsTerminal(int(out.Fd())) && getenv("TERM") != "dumb",
		Typing:   term.IsTerminal(int(in.Fd())),
		Clock:    clock.RealClock{},
		Size: func() (int, int) {
			width, height, _ := term.GetSize(int(out.Fd())) // zeros if there is no terminal
			return width, height
		},
		Interrupt: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return signal.NotifyContext(ctx, os.Interrupt)
		},
	}
}

// Main runs the command and returns its exit code.
func Main(ctx context.Context, args []string, w World) int {
	root := New(w)                            //nolint:contextcheck // cobra hands the context to the commands
	root.SetArgs(append([]string{}, args...)) // for nil, cobra would use the process's arguments
	failed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return codeDone
	}
	if text := wording.OneLine(err.Error()); text != "" {
		fmt.Fprintf(w.Err, "%s: %s\n", failed.CommandPath(), text)
	}
	return codeOf(err)
}

// New returns the command with all subcommands.
func New(w World) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-berth",
		Short: "Plan machines for models, and operate Workspaces",
		Long: `Plan machines for models, and operate Workspaces.

Planning needs no cluster and buys nothing. It uses the controller's planner and catalogue. The commands for a
Workspace use your kubeconfig and your permissions.`,
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
	plan := &cobra.Group{ID: "plan", Title: "Without a cluster:"}
	serve := &cobra.Group{ID: "serve", Title: "For a Workspace in a cluster:"}
	operate := &cobra.Group{ID: "operate", Title: "For the operator of a cluster:"}
	root.AddGroup(plan, serve, operate)
	add := func(group *cobra.Group, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = group.ID
			root.AddCommand(command)
		}
	}
	add(plan, newPlan(w), newEstimate(w), newDiff(w), newModels(w), newSKUs(w), newGPUs(w), newRender(w), newAutoscale(w))
	add(serve, newStatus(w), newLogs(w), newChat(w), newBench(w), newHistory(w), newRollback(w))
	add(operate, newAdopt(w), newCost(w), newRightsize(w), newDoctor(w), newMirror(w), newPreflightUpgrade(w))
	root.AddCommand(newVersion(w))
	return root
}
