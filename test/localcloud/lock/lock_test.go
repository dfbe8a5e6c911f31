// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// holdVariable makes this test's binary hold the lock it names until it is killed.
const holdVariable = "LOCK_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdVariable); path != "" {
		if _, err := Acquire(context.Background(), path, Self("make test-e2e", true), nobody); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("held")
		select {}
	}
	os.Exit(m.Run())
}

func nobody(Holder) {}

func limited(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t *testing.T, path string, keeps bool) *Lock {
	t.Helper()
	held, err := Acquire(limited(t, 10*time.Second), path, Self("localcloud up", keeps), nobody)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func TestKeptLockIsRefusedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	held := acquire(t, path, true)
	defer held.Release()
	_, err := Acquire(t.Context(), path, Self("localcloud down", false), func(Holder) { t.Error("it waits for a lock that is kept") })
	var refused *HeldError
	if !errors.As(err, &refused) || refused.Holder.PID != os.Getpid() {
		t.Errorf("got %v, want a refusal that names process %d", err, os.Getpid())
	}
}

func TestRefusalNamesTheHolder(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	err := &HeldError{Path: "/s.lock", Holder: Holder{PID: 42, Command: "localcloud run", Dir: "/src", Since: since, Keeps: true}}
	want := "/s.lock is held by localcloud run (process 42 in /src, since 2026-01-02 03:04:05): wait until that ends, or end it with: kill 42"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestBriefLockIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	held := acquire(t, path, false)
	var waits []string
	second, err := Acquire(limited(t, 10*time.Second), path, Self("localcloud down", false), func(h Holder) {
		waits = append(waits, h.Command)
		held.Release()
	})
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	if diff := cmp.Diff([]string{"localcloud up"}, waits); diff != "" {
		t.Errorf("who was waited for (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file of a released lock: %v, want that there is none", err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	defer acquire(t, path, false).Release()
	_, err := Acquire(limited(t, 100*time.Millisecond), path, Self("localcloud down", false), nobody)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "localcloud up (process ") {
		t.Errorf("got %v, want the deadline and who holds the lock", err)
	}
}

// TestLockOfADeadProcessIsTakenOver kills a holder; its file stays.
func TestLockOfADeadProcessIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	holder := exec.Command("/proc/self/exe")
	holder.Env = append(os.Environ(), holdVariable+"="+path)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	var refused *HeldError
	if _, err := Acquire(t.Context(), path, Self("localcloud up", false), nobody); !errors.As(err, &refused) || refused.Holder.PID != holder.Process.Pid {
		t.Fatalf("while the holder lives: %v, want a refusal that names process %d", err, holder.Process.Pid)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the dead process's file: %v", err)
	}
	acquire(t, path, false).Release()
}

func TestReleasedFileIsNotLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	first := acquire(t, path, false)
	stale, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stale.Close() }()
	first.Release()
	defer acquire(t, path, false).Release()
	if isAt(stale, path) {
		t.Error("the removed file counts as the lock, so two programs could hold it")
	}
}
