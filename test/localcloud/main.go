// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command localcloud runs a Kubernetes cluster with a small cloud around it on
// one Linux machine: real control plane, real Karpenter, real nodes; only the
// machines and their GPUs are made up. Everything lives in namespaces of its own
// and below one directory, and goes away without a trace.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/layout"
)

func main() {
	// One signal often comes twice: to the whole group of processes, and once more from make. So a second one does
	// not end the program while it takes a cloud down; that is bounded.
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	// Nor does a pipe whose reader the same Ctrl-C has ended.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "localcloud:", err)
		os.Exit(1)
	}
}

// endings are the signals that end the program, in order. nohup's programs are started with SIGHUP ignored.
func endings() []os.Signal {
	signals := []os.Signal{unix.SIGINT, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) {
		signals = append(signals, unix.SIGHUP)
	}
	return signals
}

// newRootCommand returns the program. Each subcommand has a constructor in a
// file of its own; a new one is added to the list.
func newRootCommand() *cobra.Command {
	state := &stateFlag{}
	root := &cobra.Command{
		Use:           "localcloud",
		Short:         "A Kubernetes cluster with a small cloud around it, on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&state.dir, "state-dir", "", "directory for all files of the cloud (default: one for this checkout and --name)")
	root.PersistentFlags().StringVar(&state.name, "name", "demo", "name of the cloud, if this checkout has several")
	root.AddCommand(
		newUpCommand(state),
		newDownCommand(state),
		newStatusCommand(state),
		newPushCommand(state),
		newKubeconfigCommand(state),
		newLogsCommand(state),
		newScriptCommand(state),
		newDemoCommand(state),
		newInstallCommand(state),
		newRunCommand(state),
		newBenchCommand(state),
		newBenchScaleCommand(state),
		newBenchSetsCommand(state),
		newNeighbourCommand(state),
		newServeCommand(state),
		newNodeInitCommand(),
		newKarpenterCommand(),
		newHollowCommand(),
	)
	return root
}

// stateFlag holds the flags of all commands.
type stateFlag struct{ dir, name string }

func (s *stateFlag) layout() (layout.Layout, error) {
	if s.dir != "" {
		return layout.New(s.dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return layout.Layout{}, fmt.Errorf("finding the working directory: %w", err)
	}
	tree, err := checkout(dir)
	if err != nil {
		return layout.Layout{}, err
	}
	return layout.Of(tree, s.name)
}

// requireRoot returns an error with the purpose if the program does not run as root.
func requireRoot(purpose string) error {
	if os.Geteuid() != 0 {
		return errors.New("must be root to " + purpose + ": run it with sudo")
	}
	return nil
}
