// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/demo"
)

// kubeconfigVariable leads a command of run to the cloud. It is not KUBECONFIG: a plain `go test ./...` must not
// touch a real cluster.
const kubeconfigVariable = "E2E_KUBECONFIG"

// endPatience is how long a command may take to end after a signal.
const endPatience = 15 * time.Second

func newRunCommand(state *stateFlag) *cobra.Command {
	var o owner
	s := demo.Settings{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Bring a cloud up for one command alone, and always take it down",
		Long: "Bring a cloud up for one command alone, and always take it down. If images are given, they are\n" +
			"pushed and the chart is installed first. " + kubeconfigVariable + " leads the command to the cloud.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.cloud.layout, err = state.layout(); err != nil {
				return err
			}
			o.command = "localcloud run " + filepath.Base(args[0])
			s.Kubectl = filepath.Join(o.cloud.flags.binDir, "kubectl")
			out := cmd.OutOrStdout()
			return o.use(cmd.Context(), out, func(ctx context.Context) error {
				if len(s.Images) > 0 {
					console := demo.NewConsole(out, isTerminal(os.Stdout), time.Now(), time.Now)
					if err := demo.New(s, &o.cloud, console).Install(ctx); err != nil {
						return err
					}
				}
				return execute(ctx, args, []string{kubeconfigVariable + "=" + o.cloud.layout.Kubeconfig()}, out, cmd.ErrOrStderr())
			})
		},
	}
	o.register(cmd)
	registerChart(cmd, &s)
	return cmd
}

// execute runs a command to its end. The command is a process group of its own, so a signal reaches all of it once,
// whether it went to the caller's group or to this program alone.
func execute(ctx context.Context, args, environment []string, out, errs io.Writer) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = endPatience
	err := cmd.Run()
	if cmd.Process != nil && ctx.Err() != nil {
		// This ends the processes of the group that outlive its first process.
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("ending %s: %w", args[0], err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(args[0]), err)
	}
	return nil
}
