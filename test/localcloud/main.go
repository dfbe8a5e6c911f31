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
	"syscall"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/layout"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the program at once.
	context.AfterFunc(ctx, stop)
	err := newRootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "localcloud:", err)
		os.Exit(1)
	}
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
	root.PersistentFlags().StringVar(&state.dir, "state-dir", layout.DefaultRoot, "directory that holds everything; each has a cloud of its own")
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
		newBenchCommand(state),
		newNeighbourCommand(state),
		newServeCommand(state),
		newNodeInitCommand(),
		newKarpenterCommand(),
		newHollowCommand(),
	)
	return root
}

// stateFlag is the flag that all commands share.
type stateFlag struct{ dir string }

func (s *stateFlag) layout() (layout.Layout, error) { return layout.New(s.dir) }

// requireRoot says what a command needs root for.
func requireRoot(purpose string) error {
	if os.Geteuid() != 0 {
		return errors.New("must be root to " + purpose + ": run it with sudo")
	}
	return nil
}
