// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fullFile is a file on a disk with room bytes left.
type fullFile struct {
	partialFile
	room *atomic.Int64
}

func (f fullFile) WriteAt(b []byte, at int64) (int, error) {
	if f.room.Add(-int64(len(b))) < 0 {
		return 0, &os.PathError{Op: "write", Path: "a.partial", Err: syscall.ENOSPC}
	}
	return f.partialFile.WriteAt(b, at)
}

func TestDiskFull(t *testing.T) {
	data := noise(3 << 20)
	t.Run("seen before the first byte", func(t *testing.T) {
		h := newFakeHub(t, map[string][]byte{"a": data})
		r := newRig(t, h, t.TempDir())
		r.volume.free = func() (int64, error) { return 1000, nil }
		var full *DiskFullError
		if err := r.Run(t.Context()); !errors.As(err, &full) {
			t.Fatalf("Run() = %v, want a DiskFullError", err)
		}
		if diff := cmp.Diff(&DiskFullError{Path: "a", Need: 3 << 20, Free: 1000}, full); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
		if got := h.servedBytes("a"); got != 0 {
			t.Errorf("%d bytes were fetched", got)
		}
	})
	t.Run("what is there already needs no room", func(t *testing.T) {
		h := newFakeHub(t, map[string][]byte{"a": data})
		dir := t.TempDir()
		stopHalfWay(t, h, dir, 2<<20)
		r := newRig(t, h, dir)
		r.volume.free = func() (int64, error) { return 1 << 20, nil }
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("seen while writing, and healed by more room", func(t *testing.T) {
		h := newFakeHub(t, map[string][]byte{"a": data})
		dir := t.TempDir()
		r := newRig(t, h, dir)
		var room atomic.Int64
		room.Store(2 << 20)
		open := r.volume.open
		r.volume.open = func(path string) (partialFile, error) {
			f, err := open(path)
			return fullFile{f, &room}, err
		}
		r.volume.free = func() (int64, error) { return max(room.Load(), 4<<20), nil }
		var full *DiskFullError
		if err := r.Run(t.Context()); !errors.As(err, &full) || full.Need <= 0 || full.Free != 4<<20 {
			t.Fatalf("Run() = %v, want a DiskFullError with its numbers", err)
		}
		if _, err := os.Stat(dir + "/a"); err == nil {
			t.Error("the file has its name although the disk is full")
		}
		before := h.servedBytes("a")
		if before > 3<<20 {
			t.Errorf("hub sent %d bytes, want one attempt", before)
		}
		again := newRig(t, h, dir)
		if err := again.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.read(t, "a"), data) {
			t.Error("content differs")
		}
		if got := h.servedBytes("a") - before; got > 2<<20 {
			t.Errorf("hub sent %d more bytes, want the rest only", got)
		}
	})
	t.Run("a real one", func(t *testing.T) {
		dir := smallDisk(t)
		h := newFakeHub(t, map[string][]byte{"a": data})
		r := newRig(t, h, dir)
		if err := r.Run(t.Context()); !asIfWanted(err, new(*DiskFullError)) {
			t.Errorf("Run() = %v, want a DiskFullError from the check", err)
		}
		r = newRig(t, h, dir)
		r.volume.free = func() (int64, error) { return 1 << 40, nil } // a quota that statfs does not see
		if err := r.Run(t.Context()); !asIfWanted(err, new(*DiskFullError)) {
			t.Errorf("Run() = %v, want a DiskFullError from the write", err)
		}
	})
}

// smallDisk mounts a file system of 1 MiB. This needs root.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small disk is not allowed here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestVolumeCannotBeWritten(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"a": noise(10)})
	r := newRig(t, h, t.TempDir())
	r.volume.open = func(string) (partialFile, error) {
		return nil, &os.PathError{Op: "open", Path: "a.partial", Err: syscall.EACCES}
	}
	var storage *StorageError
	if err := r.Run(t.Context()); !errors.As(err, &storage) || !errors.Is(err, syscall.EACCES) {
		t.Errorf("Run() = %v, want a StorageError for EACCES", err)
	}
}
