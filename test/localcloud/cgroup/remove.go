// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Exists reports whether any hierarchy has the group.
func (h Host) Exists(name string) bool {
	for _, hierarchy := range h.Hierarchies {
		if _, err := os.Stat(filepath.Join(hierarchy.Dir, name)); err == nil {
			return true
		}
	}
	return false
}

// Remove kills the processes in the group and the groups below it, and removes them all from every hierarchy. A
// missing group is no error.
func (h Host) Remove(ctx context.Context, name string) error {
	var errs []error
	for _, hierarchy := range h.Hierarchies {
		if err := removeTree(ctx, filepath.Join(hierarchy.Dir, name)); err != nil {
			errs = append(errs, fmt.Errorf("removing cgroup %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// removeTree tries until the kernel lets go: a group counts as used for a
// moment after its last process has ended.
func removeTree(ctx context.Context, dir string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := tryRemoveTree(dir)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last try: %w)", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

func tryRemoveTree(dir string) error {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, group := range slices.Backward(groups) { // children before parents
		killMembers(group)
		if err := unix.Rmdir(group); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("%s: %w", group, err))
		}
	}
	return errors.Join(errs...)
}

// killMembers kills the group's processes. Only nodes of this cloud use the group's name, so all its processes are
// ours.
func killMembers(group string) {
	members, err := readList(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, member := range members {
		if pid, err := strconv.Atoi(member); err == nil && pid > 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
