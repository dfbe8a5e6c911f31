// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/demo"
	"github.com/modelberth/modelberth/test/localcloud/layout"
)

func newDemoCommand(state *stateFlag) *cobra.Command {
	return newShowCommand(state, "demo", "Bring the cloud up, install the chart, and have a model answer",
		func(ctx context.Context, d *demo.Demo) error { return d.Run(ctx) })
}

func newInstallCommand(state *stateFlag) *cobra.Command {
	return newShowCommand(state, "install", "Push the images and install the chart on a cloud that is up",
		func(ctx context.Context, d *demo.Demo) error { return d.Install(ctx) })
}

// newShowCommand returns a command for the demo, or a part of it.
func newShowCommand(state *stateFlag, use, short string, run func(context.Context, *demo.Demo) error) *cobra.Command {
	cloud := &demoCloud{}
	s := demo.Settings{Curl: "curl"}
	var started int64
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cloud.layout, err = state.layout(); err != nil {
				return err
			}
			s.Kubectl = filepath.Join(cloud.flags.binDir, "kubectl")
			s.Started = time.Now()
			if started > 0 {
				s.Started = time.Unix(started, 0)
			}
			console := demo.NewConsole(cmd.OutOrStdout(), isTerminal(os.Stdout), s.Started, time.Now)
			return run(cmd.Context(), demo.New(s, cloud, console))
		},
	}
	cloud.flags.register(cmd)
	registerChart(cmd, &s)
	cmd.Flags().StringVar(&s.Manifest, "manifest", "examples/demo.yaml", "the Workspace to apply")
	cmd.Flags().Int64Var(&started, "started", 0, "start of the command in Unix seconds, for the times in the output; 0 means now")
	return cmd
}

// registerChart adds the flags of the installation.
func registerChart(cmd *cobra.Command, s *demo.Settings) {
	flags := cmd.Flags()
	flags.StringVar(&s.Helm, "helm", "helm", "the Helm program")
	flags.StringVar(&s.Chart, "chart", "charts/modelberth", "directory of the chart")
	flags.StringVar(&s.Overlay, "catalog-overlay", "examples/local-catalog", "directory of the catalogue's additions for this cloud")
	flags.StringArrayVar(&s.Images, "image", nil, "file of an image to push (controller, agent and llamacpp are required; vllm is optional)")
}

// demoCloud is this cloud as the demo sees it.
type demoCloud struct {
	layout layout.Layout
	flags  settings
}

// Up brings the cloud up if it is not.
func (c *demoCloud) Up(ctx context.Context, out io.Writer) error {
	if err := preflight(&c.flags); err != nil {
		return err
	}
	return up(ctx, c.layout, &c.flags, out)
}

// Push puts an image into the registry.
func (c *demoCloud) Push(ctx context.Context, file string) error {
	return push(ctx, c.layout, file, "", io.Discard)
}

// Kubeconfig is the administrator's.
func (c *demoCloud) Kubeconfig() string { return c.layout.Kubeconfig() }

// isTerminal reports whether a person sees each line as it is drawn.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
