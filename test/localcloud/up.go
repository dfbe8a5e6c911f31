// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/cleanup"
	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/lock"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/localcloud/supervisor"
)

// supervisorLog is the component name of the supervisor's own log.
const supervisorLog = "supervisor"

// startLimit is how long a start may take.
const startLimit = 5 * time.Minute

// askDeadline bounds one question to the supervisor.
const askDeadline = 5 * time.Second

func newUpCommand(state *stateFlag) *cobra.Command {
	flags := &settings{}
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cloud and wait until it is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := state.layout()
			if err != nil {
				return err
			}
			if err := preflight(flags); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), limit, fmt.Errorf("the cloud was not ready after %s", limit))
			defer cancel()
			return up(ctx, l, flags, cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	cmd.Flags().DurationVar(&limit, "timeout", startLimit, "how long to wait for readiness")
	return cmd
}

// up starts the cloud unless it runs already, and waits until it is ready.
func up(ctx context.Context, l layout.Layout, flags *settings, out io.Writer) error {
	var ours bool
	err := exclusively(ctx, l, "localcloud up", out, func() (err error) {
		ours, err = ensureSupervisor(ctx, l, flags, out)
		return err
	})
	if err != nil {
		return err
	}
	err = follow(ctx, l, out)
	if err == nil || !ours {
		return err
	}
	return abandon(l, err, out)
}

// exclusively keeps every other program from changing the cloud while change does. It does not wait for a program
// with the cloud for itself.
func exclusively(ctx context.Context, l layout.Layout, command string, out io.Writer, change func() error) error {
	held, err := acquire(ctx, l, lock.Self(command, false), out)
	if err != nil {
		return err
	}
	defer held.Release()
	return change()
}

func acquire(ctx context.Context, l layout.Layout, self lock.Holder, out io.Writer) (*lock.Lock, error) {
	return lock.Acquire(ctx, l.Use(), self, func(other lock.Holder) { fmt.Fprintf(out, "waiting for %s\n", other) })
}

// ensureSupervisor reports whether it had to start one.
func ensureSupervisor(ctx context.Context, l layout.Layout, flags *settings, out io.Writer) (started bool, err error) {
	_, running, err := cleanup.Running(l)
	if err != nil {
		return false, err
	}
	if running {
		fmt.Fprintf(out, "a cloud is up in %s already\n", l.Root)
		return false, nil
	}
	return true, renew(ctx, l, flags, nil, out)
}

// renew starts a cloud if none runs.
func renew(ctx context.Context, l layout.Layout, flags *settings, tie *os.File, out io.Writer) error {
	if _, err := os.Stat(l.Marker()); err == nil {
		fmt.Fprintf(out, "removing what an earlier cloud left in %s\n", l.Root)
	}
	if err := sweep(ctx, l); err != nil {
		return err
	}
	return launch(l, flags, tie)
}

// launch starts the supervisor. It outlives this program and its terminal; with a tie, it ends when the tie's other end
// is closed.
func launch(l layout.Layout, flags *settings, tie *os.File) error {
	if err := cleanup.Claim(l); err != nil {
		return err
	}
	if err := os.MkdirAll(l.Logs(), 0o755); err != nil {
		return fmt.Errorf("making the log directory: %w", err)
	}
	output, err := os.OpenFile(l.Log(supervisorLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the supervisor's log: %w", err)
	}
	defer func() { _ = output.Close() }()
	args, err := flags.args()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append([]string{"serve", "--state-dir=" + l.Root}, args...)...)
	cmd.Args[0] = "localcloud"
	cmd.Stdout, cmd.Stderr, cmd.Dir = output, output, "/"
	if tie != nil {
		cmd.Stdin, cmd.Args = tie, append(cmd.Args, "--tied")
	}
	cmd.Env = process.Environment()
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	// Collected when it ends before this program does; its end is seen by follow.
	go func() { _ = cmd.Wait() }()
	identity, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("the supervisor ended at once; the last lines of its log:\n%s", tail(l.Log(supervisorLog)))
	}
	return identity.Record(l.Processes(), cleanup.Supervisor)
}

// follow shows the progress until the cloud is ready.
func follow(ctx context.Context, l layout.Layout, out io.Writer) error {
	client := cloud.NewClient(l.Socket())
	show := newNarrator(out, time.Now())
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		status, err := askStatus(ctx, client)
		if err == nil {
			show.status(status)
		}
		if err == nil && status.Ready {
			show.ready(status)
			return nil
		}
		if _, running, err := cleanup.Running(l); err == nil && !running {
			return fmt.Errorf("the supervisor ended; the last lines of its log:\n%s", tail(l.Log(supervisorLog)))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func askStatus(ctx context.Context, client *cloud.Client) (supervisor.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	var status supervisor.Status
	err := client.Do(ctx, http.MethodGet, "/status", nil, &status)
	return status, err
}

// abandon removes the remains of an unsuccessful start, but keeps the logs after a failure of the cloud, unlike after
// the user's interruption.
func abandon(l layout.Layout, cause error, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience+sweepPatience)
	defer cancel()
	if errors.Is(cause, context.Canceled) {
		fmt.Fprintln(out, "interrupted; taking down what was started")
		return errors.Join(errors.New("interrupted"), down(ctx, l, out))
	}
	fmt.Fprintln(out, "not ready; ending what was started")
	if id, running, err := cleanup.Running(l); err == nil && running {
		if err := cleanup.Stop(ctx, id); err != nil {
			return errors.Join(cause, err)
		}
	}
	return fmt.Errorf("%w\nthe logs stay in %s until you run down", cause, l.Logs())
}
