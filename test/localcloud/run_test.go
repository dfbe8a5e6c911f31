// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

func TestExecute(t *testing.T) {
	for _, test := range []struct{ reason, script, want, wantErr string }{
		{"a command that works finds the cloud", "echo $CLOUD", "here\n", ""},
		{"a failure is the command's", "exit 3", "", "sh: exit status 3"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			var out bytes.Buffer
			err := execute(t.Context(), []string{"sh", "-c", test.script}, []string{"CLOUD=here"}, &out, &out)
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if (err == nil) != (test.wantErr == "") || err != nil && err.Error() != test.wantErr {
				t.Errorf("error %v, want %q", err, test.wantErr)
			}
		})
	}
}

// TestInterruptedCommandLeavesNobody interrupts a command with a longer-lived child: the first process of a group may
// end before the others do.
func TestInterruptedCommandLeavesNobody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "child")
	script := fmt.Sprintf(`(trap "" TERM; sleep 1000) & echo $! >%[1]s.new && mv %[1]s.new %[1]s; wait`, file)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- execute(ctx, []string{"sh", "-c", script}, nil, os.Stdout, os.Stderr) }()
	var child process.Identity
	await(t, 10*time.Second, func() error {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			return err
		}
		child, err = process.Identify(pid)
		return err
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("an interrupted command counts as one that worked")
	}
	limited, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := child.AwaitEnd(limited); err != nil {
		t.Error(err)
	}
}

// TestEndings asks the program for its ending signals, started directly and by nohup.
func TestEndings(t *testing.T) {
	if os.Getenv("ENDINGS") != "" {
		fmt.Println(endings())
		return
	}
	hangUps(t)
	for _, test := range []struct {
		reason, script string
		want           []os.Signal
	}{
		{"closing the terminal ends it", `exec "$0" -test.run=TestEndings$`, []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP}},
		{"nohup protects from that", `trap "" HUP; exec "$0" -test.run=TestEndings$`, []os.Signal{unix.SIGINT, unix.SIGTERM}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", test.script, os.Args[0])
			cmd.Env = append(os.Environ(), "ENDINGS=1")
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Split(string(out), "\n")[0], fmt.Sprint(test.want); got != want {
				t.Errorf("signals %s, want %s", got, want)
			}
		})
	}
}

func TestTiedContextEndsWithItsOwner(t *testing.T) {
	tied, tie := io.Pipe()
	ctx := untilEnd(t.Context(), tied)
	if ctx.Err() != nil {
		t.Error("it ends before its owner does")
	}
	if err := tie.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Error("it outlives its owner")
	}
}

func TestSaveLogs(t *testing.T) {
	l, dir := layout.Layout{Root: filepath.Join(t.TempDir(), "cloud-e2e")}, t.TempDir()
	for path, text := range map[string]string{
		l.Log("etcd"): "etcd says", l.Log("gpu-a/kubelet"): "kubelet says", filepath.Join(l.PKI(), "ca.key"): "secret",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, err := saveLogs(l, dir, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "cloud-e2e-logs-20260102T030405.tar.gz"); path != want {
		t.Errorf("archive %s, want %s", path, want)
	}
	want := map[string]string{"logs/etcd.log": "etcd says", "nodes/gpu-a/logs/kubelet.log": "kubelet says"}
	if diff := cmp.Diff(want, unpack(t, path)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	if _, err := saveLogs(l, filepath.Join(dir, "missing"), time.Now()); err == nil || !strings.Contains(err.Error(), "keeping the logs") {
		t.Errorf("into a directory that is not there: %v", err)
	}
}

func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	archive := tar.NewReader(unzipped)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = string(data)
	}
}
