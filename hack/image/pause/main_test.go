// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary stand in for the program.
func TestMain(m *testing.M) {
	if os.Getenv("PAUSE_UNDER_TEST") == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// As the first process of a process namespace, pause reaps orphaned processes, and ends on a signal.
func TestPause(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a process namespace of one's own needs root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A shell leaves an orphan behind and becomes pause.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `(sleep 0.2 &) ; exec "$0"`, exe)
	cmd.Env = append(os.Environ(), "PAUSE_UNDER_TEST=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Skipf("a process namespace of one's own is not allowed here: %v", err)
	}
	sawChild := false
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left := children(t, cmd.Process.Pid)
		sawChild = sawChild || len(left) > 0
		if sawChild && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("children after 30s: %q, seen before: %t", left, sawChild)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("pause ended with %v, want success", err)
	}
}

func children(t *testing.T, pid int) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(pid) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}
