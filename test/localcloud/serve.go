// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/cleanup"
	"github.com/modelberth/modelberth/test/localcloud/controlplane"
	"github.com/modelberth/modelberth/test/localcloud/hollow"
	"github.com/modelberth/modelberth/test/localcloud/karpenter"
	"github.com/modelberth/modelberth/test/localcloud/machine"
	"github.com/modelberth/modelberth/test/localcloud/node"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/localcloud/supervisor"
)

func newServeCommand(state *stateFlag) *cobra.Command {
	flags := &settings{}
	var tied bool
	cmd := &cobra.Command{
		Use:    "serve",
		Short:  "Run the supervisor (used by up)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := state.layout()
			if err != nil {
				return err
			}
			identity, err := process.Identify(os.Getpid())
			if err != nil {
				return err
			}
			if err := identity.Record(l.Processes(), cleanup.Supervisor); err != nil {
				return err
			}
			options, err := flags.options(l)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if tied {
				ctx = untilEnd(ctx, os.Stdin)
			}
			return supervisor.Run(ctx, options, newLogger())
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&tied, "tied", false, "stop when the standard input is closed")
	return cmd
}

// untilEnd returns a context that also ends when the last writer closes r.
func untilEnd(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, r)
	}()
	return ctx
}

func newNodeInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    machine.InitCommand,
		Short:  "Run the first process of a node (used by the supervisor)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := node.ReadConfig(os.Stdin)
			if err != nil {
				return err
			}
			return node.Run(cmd.Context(), config, newLogger())
		},
	}
}

func newKarpenterCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:    controlplane.KarpenterCommand,
		Short:  "Run Karpenter (used by the supervisor)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return karpenter.Run(socket) },
	}
	cmd.Flags().StringVar(&socket, "socket", "", "socket of the cloud")
	return cmd
}

func newHollowCommand() *cobra.Command {
	var kubeconfig, healthAddress string
	cmd := &cobra.Command{
		Use:    controlplane.HollowCommand,
		Short:  "Run the kubelet of simulated nodes (used by the supervisor)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return hollow.Run(cmd.Context(), kubeconfig, healthAddress, newLogger())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "access to the API server")
	cmd.Flags().StringVar(&healthAddress, "health-address", "", "address of the readiness probe")
	return cmd
}

func newLogger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }
