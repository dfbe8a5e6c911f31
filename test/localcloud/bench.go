// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/bench"
	"github.com/modelberth/modelberth/test/localcloud/demo"
)

// inFlightPerCore is a benchmark's number of concurrent requests at the API server for each core: with the default of
// 600 on two cores the server cuts watches off, and the benchmark would measure only that.
const inFlightPerCore = 16

// benchmark holds the settings of `localcloud bench-capacity`, `localcloud bench-sets` and `localcloud bench-scale`.
type benchmark struct {
	owner      owner
	demo       demo.Settings
	workspaces int
	sets       bench.Sets
	scale      bench.Scale
	model      string
	takes      time.Duration
	check      bool
	keepLog    string
}

func newBenchCommand(state *stateFlag) *cobra.Command {
	b := &benchmark{owner: owner{command: "localcloud bench-capacity"}}
	cmd := b.bind(state, &cobra.Command{
		Use:   "bench-capacity",
		Short: "Measure the controller with many Workspaces on simulated nodes, in a separate cloud",
	}, b.measure)
	cmd.Flags().IntVar(&b.workspaces, "workspaces", 200, "number of Workspaces to apply at once")
	cmd.Flags().BoolVar(&b.check, "check", false, "fail if a figure exceeds its budget")
	return cmd
}

func newBenchScaleCommand(state *stateFlag) *cobra.Command {
	b := &benchmark{owner: owner{command: "localcloud bench-scale"}}
	cmd := b.bind(state, &cobra.Command{
		Use:   "bench-scale",
		Short: "Measure the controller in a large cluster: with many Workspaces at once, at rest, after a restart, and after the end of a leader",
	}, b.measureScale)
	cmd.Flags().IntVar(&b.workspaces, "workspaces", 1000, "number of Workspaces to apply at once")
	cmd.Flags().IntVar(&b.scale.Nodes, "other-nodes", 1000, "number of nodes that belong to no Workspace")
	cmd.Flags().DurationVar(&b.scale.Rest, "rest", time.Minute, "time of the measurement at rest")
	cmd.Flags().BoolVar(&b.check, "check", false, "fail if a figure exceeds its budget")
	return cmd
}

func newBenchSetsCommand(state *stateFlag) *cobra.Command {
	b := &benchmark{owner: owner{command: "localcloud bench-sets"}}
	cmd := b.bind(state, &cobra.Command{
		Use:   "bench-sets",
		Short: "Measure the controller with many InferenceSets that change at once, on simulated nodes, in a separate cloud",
	}, b.measureSets)
	cmd.Flags().IntVar(&b.sets.Count, "sets", 40, "number of InferenceSets")
	cmd.Flags().IntVar(&b.sets.Replicas, "replicas", 5, "replicas of each InferenceSet")
	return cmd
}

// bind gives a command the flags of all benchmarks of the controller, and runs it on a cloud of its own.
func (b *benchmark) bind(
	state *stateFlag, cmd *cobra.Command, measure func(context.Context, bench.Settings, io.Writer) error,
) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if b.owner.cloud.layout, err = state.layout(); err != nil {
			return err
		}
		if !cmd.Flags().Changed("in-flight") {
			b.owner.cloud.flags.inFlight = inFlightPerCore * runtime.NumCPU()
		}
		b.demo.Kubectl = filepath.Join(b.owner.cloud.flags.binDir, "kubectl")
		out := cmd.OutOrStdout()
		return measureAlone(cmd.Context(), &b.owner, out, func(ctx context.Context) error {
			console := demo.NewConsole(out, false, time.Now(), time.Now)
			if err := demo.New(b.demo, &b.owner.cloud, console).Install(ctx); err != nil {
				return errors.Join(err, b.saveLog())
			}
			settings := bench.Settings{Layout: b.owner.cloud.layout, Model: b.model, MachinesTake: b.takes, Say: console.Step}
			return errors.Join(measure(ctx, settings, out), b.saveLog())
		})
	}
	b.owner.register(cmd)
	registerChart(cmd, &b.demo)
	cmd.Flags().StringVar(&b.model, "model", "tiny-chat", "preset of the Workspaces")
	cmd.Flags().DurationVar(&b.takes, "machines-take", 0, "time that the cloud takes to sell a machine")
	cmd.Flags().StringVar(&b.keepLog, "keep-log", "", "file for a copy of the API server's audit log")
	return cmd
}

// measureAlone measures on a separate cloud, with a benchmark's audit policy.
func measureAlone(ctx context.Context, o *owner, out io.Writer, measure func(context.Context) error) error {
	policy, err := writePolicy()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(policy) }()
	o.cloud.flags.auditPolicy, o.cloud.flags.hollow = policy, true
	return o.use(ctx, out, measure)
}

func (b *benchmark) saveLog() error {
	if b.keepLog == "" {
		return nil
	}
	from, err := os.Open(b.owner.cloud.layout.Log("audit"))
	if err != nil {
		return fmt.Errorf("keeping the audit log: %w", err)
	}
	defer func() { _ = from.Close() }()
	to, err := os.Create(b.keepLog)
	if err != nil {
		return fmt.Errorf("keeping the audit log: %w", err)
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

func writePolicy() (string, error) {
	file, err := os.CreateTemp("", "audit-policy-*.yaml")
	if err != nil {
		return "", fmt.Errorf("making the audit policy: %w", err)
	}
	_, err = file.Write(bench.AuditPolicy)
	return file.Name(), errors.Join(err, file.Close())
}

func (b *benchmark) measure(ctx context.Context, settings bench.Settings, out io.Writer) error {
	settings.Workspaces = b.workspaces
	figures, err := bench.Run(ctx, settings)
	return b.print(out, figures, figures.Workspaces, err)
}

func (b *benchmark) measureScale(ctx context.Context, settings bench.Settings, out io.Writer) error {
	settings.Workspaces = b.workspaces
	figures, err := bench.RunScale(ctx, settings, b.scale)
	return b.print(out, figures, figures.Workspaces, err)
}

// print shows the figures, even after an interrupted measurement.
func (b *benchmark) print(out io.Writer, figures interface {
	Print(out io.Writer) error
	Missed() int
}, workspaces int, err error,
) error {
	if workspaces > 0 {
		fmt.Fprintln(out)
		err = errors.Join(err, figures.Print(out))
	}
	if err != nil {
		return err
	}
	if missed := figures.Missed(); b.check && missed > 0 {
		return fmt.Errorf("%d figures exceed their budgets", missed)
	}
	return nil
}

func (b *benchmark) measureSets(ctx context.Context, settings bench.Settings, out io.Writer) error {
	figures, err := bench.RunSets(ctx, settings, b.sets)
	fmt.Fprintln(out)
	return errors.Join(err, figures.Print(out))
}
