// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/cleanup"
	"github.com/modelberth/modelberth/test/localcloud/layout"
)

// Limits of going down.
const (
	// stopPatience is how long the supervisor may take to end everything itself.
	stopPatience = 30 * time.Second
	// sweepPatience bounds the removal of the remains.
	sweepPatience = 60 * time.Second
)

func newDownCommand(state *stateFlag) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cloud and remove all its files and processes, also after a crash",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := state.layout()
			if err != nil {
				return err
			}
			if err := requireRoot("end namespaces and control groups"); err != nil {
				return err
			}
			return down(cmd.Context(), l, cmd.OutOrStdout())
		},
	}
}

// down takes the cloud down unless a program keeps it for itself.
func down(ctx context.Context, l layout.Layout, out io.Writer) error {
	return exclusively(ctx, l, "localcloud down", out, func() error { return takeDown(ctx, l, out) })
}

// takeDown ends the supervisor if there is one and removes the remains.
func takeDown(ctx context.Context, l layout.Layout, out io.Writer) error {
	began := time.Now()
	if _, err := os.Stat(l.Root); os.IsNotExist(err) {
		// Control groups are named after the directory, so they are looked for
		// even when it is gone.
		if err := sweep(ctx, l); err != nil {
			return err
		}
		fmt.Fprintf(out, "nothing is up in %s\n", l.Root)
		return nil
	}
	supervisor, running, err := cleanup.Running(l)
	if err != nil {
		return err
	}
	if running {
		fmt.Fprintf(out, "ending the cloud in %s\n", l.Root)
		stopping, cancel := context.WithTimeout(ctx, stopPatience)
		defer cancel()
		if err := cleanup.Stop(stopping, supervisor); err != nil {
			fmt.Fprintf(out, "killing the supervisor, which did not stop in time (%v)\n", err)
		}
	}
	if err := sweep(ctx, l); err != nil {
		return err
	}
	fmt.Fprintf(out, "down after %.1fs; nothing is left\n", time.Since(began).Seconds())
	return nil
}

func sweep(ctx context.Context, l layout.Layout) error {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	return cleanup.Sweep(ctx, l)
}
