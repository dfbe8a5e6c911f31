// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/demo"
	"github.com/modelberth/modelberth/test/localcloud/neighbour"
)

func newNeighbourCommand(state *stateFlag) *cobra.Command {
	o := owner{command: "localcloud bench-neighbour"}
	var rounds int
	var shapes string
	cmd := &cobra.Command{
		Use:   "bench-neighbour",
		Short: "Measure how a request for a GPU machine delays other pods that wait for nodes, in a separate cloud",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			matching, err := regexp.Compile(shapes)
			if err != nil {
				return fmt.Errorf("flag --shapes: %w", err)
			}
			if o.cloud.layout, err = state.layout(); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			return measureAlone(cmd.Context(), &o, out, func(ctx context.Context) error {
				say := demo.NewConsole(out, false, time.Now(), time.Now).Step
				figures, err := neighbour.Run(ctx, neighbour.Settings{Layout: o.cloud.layout, Rounds: rounds, Matching: matching, Say: say})
				if len(figures.Courses) > 0 {
					fmt.Fprintln(out)
					err = errors.Join(err, figures.Print(out))
				}
				return err
			})
		},
	}
	o.register(cmd)
	cmd.Flags().IntVar(&rounds, "rounds", 3, "number of measurements of each shape")
	cmd.Flags().StringVar(&shapes, "shapes", "", "regular expression for the names of the shapes to measure")
	return cmd
}
