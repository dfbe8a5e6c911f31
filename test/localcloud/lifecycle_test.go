// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/cleanup"
	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// lifecycleVariable turns on the tests with real clouds.
const lifecycleVariable = "LOCALCLOUD_LIFECYCLE"

// TestMain lets the test binary be the program itself: the cloud starts its supervisor, its nodes and Karpenter from
// its own executable.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		main()
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, endings()...)
	go func() {
		<-signals
		sweepAll()
		os.Exit(1)
	}()
	os.Exit(m.Run())
}

// testRoot starts the state directories of this process's clouds.
func testRoot() string { return fmt.Sprintf("/var/lib/modelberth-localcloud-test-%d", os.Getpid()) }

// sweepAll takes down every cloud of this process's tests.
func sweepAll() {
	roots, _ := filepath.Glob(testRoot() + "*")
	for _, root := range roots {
		if err := sweep(context.Background(), layout.Layout{Root: strings.TrimSuffix(root, ".lock")}); err != nil {
			fmt.Fprintln(os.Stderr, "sweeping after a signal:", err)
		}
	}
}

// TestLifecycle brings clouds up and ends them in every way there is. After each
// the host must be as it was before the first.
func TestLifecycle(t *testing.T) {
	c := newTestCloud(t)
	before := snapshot(t, c.layout)

	t.Run("up, twice, and down", func(t *testing.T) {
		c.up(t)
		c.populate(t)
		if out := c.run(t, "up"); !strings.Contains(out, "already") {
			t.Errorf("the second up does not say that the cloud is up: %s", out)
		}
		inside := c.namespaces(t)
		c.run(t, "down")
		c.compare(t, before, inside)
		if out := c.run(t, "down"); !strings.Contains(out, "nothing is up") {
			t.Errorf("the second down does not say that there is nothing: %s", out)
		}
	})
	t.Run("supervisor killed", func(t *testing.T) {
		c.up(t)
		c.populate(t)
		inside := c.namespaces(t)
		c.kill(t)
		// Before any cleanup, the kernel alone must have ended everything.
		began := time.Now()
		await(t, 10*time.Second, func() error { return nobodyIn(inside) })
		t.Logf("the kernel took %.1fs to end everything", time.Since(began).Seconds())
		c.run(t, "down")
		c.compare(t, before, inside)
	})
	t.Run("up again after a crash", func(t *testing.T) {
		c.up(t)
		c.kill(t)
		if out := c.run(t, "up"); !strings.Contains(out, "an earlier cloud") {
			t.Errorf("up does not say that it cleans up: %s", out)
		}
		inside := c.namespaces(t)
		c.run(t, "down")
		c.compare(t, before, inside)
	})
	for _, stage := range []string{"API server", "system node"} {
		t.Run("interrupted at "+stage, func(t *testing.T) {
			up, out := c.start(t, "up")
			inside := c.atStage(t, stage)
			sendSignal(t, up, unix.SIGINT)
			if err := up.Wait(); err == nil || !strings.Contains(out.String(), "interrupted") {
				t.Errorf("the interrupted up ends with %v and says: %s", err, out)
			}
			c.compare(t, before, inside)
		})
		t.Run("all killed at "+stage, func(t *testing.T) {
			up, _ := c.start(t, "up")
			inside := c.atStage(t, stage)
			sendSignal(t, up, unix.SIGKILL)
			c.kill(t)
			_ = up.Wait()
			c.run(t, "down")
			c.compare(t, before, inside)
		})
	}
}

// testCloud is a cloud with its own state directory.
type testCloud struct {
	layout layout.Layout
	client *cloud.Client
}

func newTestCloud(t *testing.T) *testCloud {
	t.Helper()
	if os.Getenv(lifecycleVariable) == "" {
		t.Skipf("starts real clouds: set %s=1, and KUBE_BIN and COREDNS as `make env` prints them, and be root", lifecycleVariable)
	}
	flags := &settings{}
	flags.register(&cobra.Command{})
	flags.skus = "../../presets/skus"
	if err := preflight(flags); err != nil {
		t.Fatalf("%s is set, but: %v", lifecycleVariable, err)
	}
	l, err := layout.New(testRoot())
	if err != nil {
		t.Fatal(err)
	}
	c := &testCloud{layout: l, client: cloud.NewClient(l.Socket())}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("supervisor's last lines: %s", tail(l.Log(supervisorLog)))
		}
		if err := sweep(context.Background(), l); err != nil {
			t.Errorf("sweeping after the test: %v", err)
		}
	})
	return c
}

// start runs a command of this program without waiting for its end.
func (c *testCloud) start(t *testing.T, command string, flags ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd, out := c.command(command, flags...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// command is one of this program's for the cloud.
func (c *testCloud) command(command string, flags ...string) (*exec.Cmd, *bytes.Buffer) {
	args := []string{command, "--state-dir=" + c.layout.Root}
	if command == "up" || command == "run" {
		args = append(args, "--skus=../../presets/skus")
	}
	cmd := exec.Command(self, append(args, flags...)...)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// run runs a command of this program to its end and returns its output.
func (c *testCloud) run(t *testing.T, command string, flags ...string) string {
	t.Helper()
	began := time.Now()
	cmd, out := c.start(t, command, flags...)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	t.Logf("%s took %.1fs", command, time.Since(began).Seconds())
	return out.String()
}

func (c *testCloud) up(t *testing.T, flags ...string) {
	t.Helper()
	c.run(t, "up", flags...)
}

// kill ends the supervisor without giving it a chance.
func (c *testCloud) kill(t *testing.T) {
	t.Helper()
	id, running, err := cleanup.Running(c.layout)
	if err != nil || !running {
		t.Fatalf("supervisor to kill: running %v, error %v", running, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := id.End(ctx); err != nil {
		t.Fatal(err)
	}
}

// atStage waits until the start is at the stage and something runs there, in
// namespaces of its own: a process is recorded a moment before it enters them.
func (c *testCloud) atStage(t *testing.T, stage string) map[string]bool {
	t.Helper()
	var inside map[string]bool
	await(t, 2*time.Minute, func() error {
		status, err := askStatus(context.Background(), c.client)
		if err != nil {
			return err
		}
		if status.Ready {
			t.Fatalf("the cloud is ready before it was seen at stage %q", stage)
		}
		if status.Stage != stage || status.Waiting == "" {
			return fmt.Errorf("at stage %q", status.Stage)
		}
		if inside = c.namespaces(t); len(inside) == 0 {
			return fmt.Errorf("at stage %q, no process has a namespace of its own yet", status.Stage)
		}
		return nil
	})
	return inside
}

func sendSignal(t *testing.T, cmd *exec.Cmd, s unix.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, limit time.Duration, ready func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := process.Await(ctx, "the test's condition", 50*time.Millisecond, func(context.Context) error { return ready() }); err != nil {
		t.Fatal(err)
	}
}
