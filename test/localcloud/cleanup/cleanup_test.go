// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

func testLayout(t *testing.T) layout.Layout {
	t.Helper()
	l, err := layout.New(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func limited(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// sleeper starts a process and returns its identity.
func sleeper(t *testing.T) process.Identity {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	id, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestSweepEndsWhatIsOnRecord(t *testing.T) {
	l := testLayout(t)
	if err := Claim(l); err != nil {
		t.Fatal(err)
	}
	supervisor, other, stranger := sleeper(t), sleeper(t), sleeper(t)
	records := map[string]process.Identity{
		Supervisor: supervisor, "etcd": other,
		// Its number has gone to somebody else since.
		"node-a": {PID: stranger.PID, Start: stranger.Start - 1},
	}
	for name, id := range records {
		if err := id.Record(l.Processes(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, running, err := Running(l); !running || err != nil {
		t.Errorf("before: running %v, %v; want that it runs", running, err)
	}
	if err := Sweep(limited(t, 20*time.Second), l); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{"supervisor": supervisor.Alive(), "etcd": other.Alive(), "stranger": stranger.Alive()}
	if diff := cmp.Diff(map[string]bool{"supervisor": false, "etcd": false, "stranger": true}, got); diff != "" {
		t.Errorf("who is alive (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(l.Root); !os.IsNotExist(err) {
		t.Errorf("the state directory is still there: %v", err)
	}
	if _, running, err := Running(l); running || err != nil {
		t.Errorf("after: running %v, %v; want that nothing runs", running, err)
	}
	if err := Sweep(limited(t, 20*time.Second), l); err != nil {
		t.Errorf("sweeping again: %v", err)
	}
}

func TestForeignDirectoriesAreLeftAlone(t *testing.T) {
	l := testLayout(t)
	precious := filepath.Join(l.Root, "thesis.txt")
	if err := os.Mkdir(l.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		"Sweep": func() error { return Sweep(limited(t, time.Second), l) },
		"Claim": func() error { return Claim(l) },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "does not belong to a local cloud") {
			t.Errorf("%s says %v, want that the directory is not ours", what, err)
		}
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("the user's file is gone: %v", err)
	}
}

func TestClaimOfAnEmptyDirectory(t *testing.T) {
	l := testLayout(t)
	if err := os.Mkdir(l.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Claim(l); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStop(t *testing.T) {
	id := sleeper(t)
	if err := Stop(limited(t, 20*time.Second), id); err != nil || id.Alive() {
		t.Errorf("Stop says %v, alive %v", err, id.Alive())
	}
}

func TestMountsBelow(t *testing.T) {
	const mountinfo = `22 28 0:20 / /proc rw - proc proc rw
30 28 0:26 / /state rw - ext4 /dev/sdb rw
31 30 0:27 / /state/nodes/a rw - tmpfs tmpfs rw
32 31 0:28 / /state/nodes/a/b rw - tmpfs tmpfs rw
33 28 0:29 / /state-of-others/x rw - tmpfs tmpfs rw
`
	got, err := mountsBelow(strings.NewReader(mountinfo), "/state")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/state/nodes/a", "/state/nodes/a/b"}, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}
