// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// Names of the files that the agent keeps next to a file.
const (
	partialSuffix = ".partial"
	stateSuffix   = ".partial.json"
	markerSuffix  = ".verified"
	newSuffix     = ".new"
)

const (
	dirMode  = 0o755
	fileMode = 0o644
)

// partialFile has the methods of *os.File for a download. A test can replace it, for example by a disk that fills up.
type partialFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

// volume is the target directory of the files. Every access uses os.Root, so that no name or symbolic link leads out of
// it.
type volume struct {
	root *os.Root
	// open and free are seams for tests.
	open func(path string) (partialFile, error)
	free func() (int64, error)
}

func newVolume(root *os.Root) *volume {
	return &volume{
		root: root,
		open: func(p string) (partialFile, error) { return root.OpenFile(p, os.O_RDWR|os.O_CREATE, fileMode) },
		free: func() (int64, error) { return freeBytes(root.Name()) },
	}
}

// freeBytes returns the free space for an unprivileged process.
func freeBytes(dir string) (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("reading the free space of %q: %w", dir, err)
	}
	return int64(fs.Bavail * uint64(fs.Bsize)), nil
}

func (v *volume) readRecord(name string) ([]byte, error) {
	f, err := v.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxRecord+1))
}

// writeRecord replaces a small file atomically. After a crash of the machine, the file may be empty, but no reader
// accepts an empty record.
func (v *volume) writeRecord(name string, data []byte) error {
	if err := v.root.WriteFile(name+newSuffix, data, fileMode); err != nil {
		return storageError(name, err)
	}
	if err := v.root.Rename(name+newSuffix, name); err != nil {
		return storageError(name, err)
	}
	return nil
}

// publish gives a verified file its final name.
func (v *volume) publish(name string) error {
	if err := v.root.Rename(name+partialSuffix, name); err != nil {
		return storageError(name, err)
	}
	return nil
}

// sync makes a published file survive a crash of the machine. It does not sync the directory: if the file loses its
// name, the agent fetches it again.
func (v *volume) sync(name string) error {
	f, err := v.root.Open(name)
	if err != nil {
		return storageError(name, err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil {
		return v.writeFailed(name, 0, err)
	}
	return nil
}

// link atomically makes name a symbolic link to another file.
func (v *volume) link(name, to string) error {
	if err := v.makeDir(name); err != nil {
		return err
	}
	if err := v.remove(name + newSuffix); err != nil {
		return err
	}
	if err := v.root.Symlink(to, name+newSuffix); err != nil {
		return storageError(name, err)
	}
	if err := v.root.Rename(name+newSuffix, name); err != nil {
		return storageError(name, err)
	}
	return nil
}

func (v *volume) isLink(name string) bool {
	info, err := v.root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

func (v *volume) makeDir(name string) error {
	if err := v.root.MkdirAll(path.Dir(name), dirMode); err != nil {
		return storageError(name, err)
	}
	return nil
}

// DiskFullError is returned if the volume has no room for the remaining bytes.
type DiskFullError struct {
	Path       string
	Need, Free int64
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("volume is full: %d bytes to write, %d bytes free", e.Need, e.Free)
}

// StorageError is returned if the volume refused a read or a write for a reason other than its size.
type StorageError struct {
	Path string
	Err  error
}

func (e *StorageError) Error() string { return fmt.Sprintf("volume: %q: %v", e.Path, e.Err) }
func (e *StorageError) Unwrap() error { return e.Err }

func storageError(name string, err error) error {
	// The message has the name once. A path error would repeat it.
	if wrapped := new(fs.PathError); errors.As(err, &wrapped) {
		err = fmt.Errorf("%s: %w", wrapped.Op, wrapped.Err)
	}
	return &StorageError{Path: name, Err: err}
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func openDest(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

func (v *volume) exists(path string) (os.FileInfo, bool, error) {
	info, err := v.root.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, storageError(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, false, storageError(path, errors.New("the path exists but is not a regular file"))
	}
	return info, true, nil
}

// remove removes a file. It ignores a missing file.
func (v *volume) remove(path string) error {
	if err := v.root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageError(path, err)
	}
	return nil
}

// writeFailed returns the error of a failed write. It distinguishes a full volume from a broken one.
func (v *volume) writeFailed(path string, need int64, err error) error {
	if !isFull(err) {
		if storage := new(StorageError); errors.As(err, &storage) {
			return err
		}
		return storageError(path, err)
	}
	free, freeErr := v.free()
	if freeErr != nil {
		return errors.Join(storageError(path, err), freeErr)
	}
	return &DiskFullError{Path: path, Need: need, Free: free}
}
