// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/test/localcloud/cleanup"
	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// TestLifecycleOfOwnedClouds ends programs with a cloud for themselves in every possible way.
func TestLifecycleOfOwnedClouds(t *testing.T) {
	c := newTestCloud(t)
	before := snapshot(t, c.layout)

	t.Run("one that others want, ended by a signal that comes twice", func(t *testing.T) {
		run, out, sleeper := c.startRun(t, false)
		inside := c.namespaces(t)
		for _, command := range []string{"up", "down"} {
			other, says := c.start(t, command)
			want := fmt.Sprintf("localcloud run sh (process %d in ", run.Process.Pid)
			if err := other.Wait(); err == nil || !strings.Contains(says.String(), want) {
				t.Errorf("%s ends with %v and says %q, want %q", command, err, says, want)
			}
		}
		c.leavesAlone(t)
		sendSignal(t, run, unix.SIGTERM)
		sendSignal(t, run, unix.SIGTERM)
		if err := run.Wait(); err == nil || !strings.Contains(out.String(), "interrupted") || !strings.Contains(out.String(), "nothing is left") {
			t.Errorf("it ends with %v and says: %s", err, out)
		}
		if sleeper.Alive() {
			t.Error("its command outlives it")
		}
		c.compare(t, before, inside)
	})
	t.Run("its terminal and the reader of its output go", func(t *testing.T) {
		hangUps(t)
		run, _, sleeper := c.startRun(t, true)
		inside := c.namespaces(t)
		sendSignal(t, run, unix.SIGHUP)
		_ = run.Wait()
		if sleeper.Alive() {
			t.Error("its command outlives it")
		}
		c.compare(t, before, inside)
	})
	t.Run("killed", func(t *testing.T) {
		run, _, sleeper := c.startRun(t, false)
		inside := c.namespaces(t)
		sendSignal(t, run, unix.SIGKILL)
		await(t, stopPatience, func() error { return nobodyIn(inside) })
		await(t, stopPatience, func() error {
			if _, running, err := cleanup.Running(c.layout); err != nil || running {
				return fmt.Errorf("the supervisor outlives its owner (%w)", err)
			}
			return nil
		})
		if err := sleeper.End(t.Context()); err != nil {
			t.Error(err)
		}
		_ = run.Wait() // for the end of its output, which the command held open
		c.run(t, "down")
		c.compare(t, before, inside)
	})
}

// hangUps lets a test's programs receive SIGHUP, also if nohup started the tests: a program starts with the default
// for its parent's handled signals, and ignores its parent's ignored ones.
func hangUps(t *testing.T) {
	t.Helper()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGHUP)
	t.Cleanup(func() { signal.Stop(signals) })
}

// startRun starts run with an endless command and returns it; if deaf, its output goes to a pipe without a reader.
func (c *testCloud) startRun(t *testing.T, deaf bool) (*exec.Cmd, *bytes.Buffer, process.Identity) {
	t.Helper()
	started := filepath.Join(t.TempDir(), "started")
	script := fmt.Sprintf(`test -f "$E2E_KUBECONFIG" && echo $$ >%[1]s.new && mv %[1]s.new %[1]s; exec sleep 1000`, started)
	cmd, out := c.command("run", "--", "sh", "-c", script)
	if deaf {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = writer, writer
		defer func() { _ = writer.Close() }()
		defer func() { _ = reader.Close() }()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var id process.Identity
	await(t, 2*time.Minute, func() error {
		data, err := os.ReadFile(started)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			return err
		}
		id, err = process.Identify(pid)
		return err
	})
	return cmd, out, id
}

// leavesAlone brings up another cloud beside this one, with the same machine addresses, and takes it down.
func (c *testCloud) leavesAlone(t *testing.T) {
	t.Helper()
	l, err := layout.New(c.layout.Root + "-other")
	if err != nil {
		t.Fatal(err)
	}
	other := &testCloud{layout: l, client: cloud.NewClient(l.Socket())}
	defer func() {
		if err := sweep(t.Context(), l); err != nil {
			t.Errorf("sweeping the other cloud: %v", err)
		}
	}()
	other.up(t)
	if len(other.nodes(t)) != 1 || len(c.nodes(t)) != 1 {
		t.Errorf("of two clouds one has nodes %v, the other %v; want the system node in each", c.nodes(t), other.nodes(t))
	}
	other.run(t, "down")
	if len(c.nodes(t)) != 1 {
		t.Error("the node of a cloud goes when another cloud is taken down")
	}
}

// nodes returns the ready nodes.
func (c *testCloud) nodes(t *testing.T) []string {
	t.Helper()
	var list corev1.NodeList
	if err := c.kube(t).List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var ready []string
	for i := range list.Items {
		for _, condition := range list.Items[i].Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				ready = append(ready, list.Items[i].Name)
			}
		}
	}
	return ready
}
