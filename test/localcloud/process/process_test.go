// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// children starts processes the plain way.
type children struct{}

func (children) Start(cmd *exec.Cmd) (func() error, error) {
	return cmd.Wait, cmd.Start()
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestParseStat(t *testing.T) {
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	for _, test := range []struct {
		reason, stat string
		start        uint64
		state        byte
		fails        bool
	}{
		{reason: "a plain name", stat: "12 (etcd) S" + rest, start: 4711, state: 'S'},
		{reason: "a name made to confuse", stat: "12 (a) Z (b)) R" + rest, start: 4711, state: 'R'},
		{reason: "no name", stat: "12", fails: true},
		{reason: "cut short", stat: "12 (etcd) S 1 2", fails: true},
		{reason: "a start that is no number", stat: "12 (etcd) S" + strings.Replace(rest, "4711", "x", 1), fails: true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			start, state, err := parseStat([]byte(test.stat))
			if (err != nil) != test.fails {
				t.Fatalf("error %v, want one: %v", err, test.fails)
			}
			if start != test.start || state != test.state {
				t.Errorf("start %d, state %q; want %d, %q", start, state, test.start, test.state)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !id.Alive() {
		t.Error("a running process is taken for dead")
	}
	other := Identity{PID: id.PID, Start: id.Start + 1}
	if other.Alive() {
		t.Error("a process is taken for an earlier one with its number")
	}
	if err := other.End(limited(t)); err != nil || !id.Alive() {
		t.Errorf("ending the earlier one (%v) must not touch this one: alive %v", err, id.Alive())
	}
	if err := id.End(limited(t)); err != nil || id.Alive() {
		t.Errorf("after End (%v) it is alive: %v", err, id.Alive())
	}
	if err := id.End(limited(t)); err != nil {
		t.Errorf("ending it again: %v", err)
	}
}

func TestRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "processes")
	if got, err := Recorded(dir); err != nil || len(got) > 0 {
		t.Errorf("before the first record: %v, %v", got, err)
	}
	want := map[string]Identity{"etcd": {PID: 7, Start: 8}, "node-a": {PID: 9, Start: 10}}
	for name, id := range want {
		if err := id.Record(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(RecordPath(dir, "cut-short"), []byte(`{"pi`), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Recorded(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestKeeperStartsAgain(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "logs", "program.log")
	keeper := NewKeeper(Command{
		Name: "program", Path: "/bin/sh", Args: []string{"-c", "echo hello; exit 3"}, Env: Environment(), Log: log,
	}, children{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(limited(t))
	ended := make(chan struct{})
	go func() {
		keeper.Run(ctx)
		close(ended)
	}()
	err := Await(ctx, "two starts", 10*time.Millisecond, func(context.Context) error {
		data, err := os.ReadFile(log)
		if err == nil && strings.Count(string(data), "hello\n") < 2 {
			err = errors.New("fewer")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	state := keeper.State()
	if state.Running || state.Restarts < 2 || state.LastExit != "exit status 3" {
		t.Errorf("state %+v, want two ends with exit status 3", state)
	}
}

func TestKeeperEndsItsProgram(t *testing.T) {
	keeper := NewKeeper(Command{
		Name: "program", Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; exec sleep 60"}, Log: filepath.Join(t.TempDir(), "log"),
	}, children{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(limited(t))
	ended := make(chan struct{})
	go func() {
		keeper.Run(ctx)
		close(ended)
	}()
	err := Await(ctx, "the program to run", time.Millisecond, func(context.Context) error {
		if !keeper.State().Running {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	id, err := Identify(keeper.State().PID)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if id.Alive() {
		t.Error("the program outlived its keeper")
	}
}

func TestKeeperSurvivesAMissingProgram(t *testing.T) {
	keeper := NewKeeper(Command{Name: "program", Path: "/does/not/exist", Log: filepath.Join(t.TempDir(), "log")}, children{}, slog.New(slog.DiscardHandler))
	if err := keeper.once(t.Context()); err == nil {
		t.Fatal("a program that is not there starts")
	}
	if got := keeper.State().LastExit; !strings.Contains(got, "starting program: ") {
		t.Errorf("its last exit is %q, want that it could not start", got)
	}
}

func TestReaper(t *testing.T) {
	reaper := NewReaper()
	wait := func(program string, args ...string) error {
		done, err := reaper.Start(exec.Command(program, args...))
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- done() }()
		// By hand, and again: another test's child must not be taken by a loop beyond this test's end.
		for {
			reaper.collect()
			select {
			case err := <-ended:
				return err
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	for _, test := range []struct{ reason, script, want string }{
		{"a good end", "exit 0", ""},
		{"a bad end", "exit 7", "exit status 7"},
		{"a killed one", "kill -9 $$", "killed by signal killed"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := ""
			if err := wait("/bin/sh", "-c", test.script); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if err := wait("/does/not/exist"); err == nil {
		t.Error("a program that is not there starts")
	}
}

func TestReaperCollectsOrphans(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skipf("cannot take in orphans here: %v", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	pidFile := filepath.Join(t.TempDir(), "pid")
	// The shell ends before its child; the child becomes ours.
	if err := exec.Command("/bin/sh", "-c", "sleep 0.1 & echo $! > "+pidFile).Run(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	reaper := NewReaper()
	err = Await(limited(t), "the orphan to be collected", 10*time.Millisecond, func(context.Context) error {
		reaper.collect()
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(data))); err == nil {
			return errors.New("it is still listed")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAwaitSaysWhatItWaitedFor(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("patience lost"))
	err := Await(ctx, "rain", time.Hour, func(context.Context) error { return errors.New("sunny") })
	const want = "waiting for rain: patience lost (last answer: sunny)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
