// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cleanup removes all remains of a local cloud from the machine, by the records in its state directory and by
// its own names. It works without a supervisor: after a crash, a kill or an interrupted start. It must not touch
// anything without proof of its origin.
package cleanup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/modelberth/modelberth/test/localcloud/cgroup"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/process"
)

// Supervisor is the name of the supervisor's own record.
const Supervisor = "supervisor"

// Running returns the recorded supervisor if it still runs.
func Running(l layout.Layout) (process.Identity, bool, error) {
	recorded, err := process.Recorded(l.Processes())
	if err != nil {
		return process.Identity{}, false, err
	}
	id, found := recorded[Supervisor]
	return id, found && id.Alive(), nil
}

// Stop asks the supervisor to end everything and waits until it has ended.
func Stop(ctx context.Context, id process.Identity) error {
	if err := id.Signal(unix.SIGTERM); err != nil {
		return err
	}
	return id.AwaitEnd(ctx)
}

// Sweep removes the remains of the cloud: processes, control groups, mounts and the state directory. Nothing left is
// no error.
func Sweep(ctx context.Context, l layout.Layout) error {
	if err := ours(l); err != nil {
		return err
	}
	if err := endProcesses(ctx, l); err != nil {
		return err
	}
	if err := removeCgroups(ctx, l); err != nil {
		return err
	}
	if err := removeMounts(l); err != nil {
		return err
	}
	if err := os.RemoveAll(l.Root); err != nil {
		return fmt.Errorf("removing the state directory: %w", err)
	}
	return nil
}

// ours refuses a state directory without a cloud's marker.
func ours(l layout.Layout) error {
	entries, err := os.ReadDir(l.Root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the state directory: %w", err)
	}
	if _, err := os.Stat(l.Marker()); err == nil || len(entries) == 0 {
		return nil
	}
	return fmt.Errorf("%s has files but not %s, so it does not belong to a local cloud: give --state-dir another directory, or empty this one", l.Root, filepath.Base(l.Marker()))
}

// Claim makes the state directory and marks it as a local cloud's.
func Claim(l layout.Layout) error {
	if err := ours(l); err != nil {
		return err
	}
	if err := os.MkdirAll(l.Root, 0o711); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	text := fmt.Sprintf("This directory belongs to a Modelberth local cloud; `localcloud down --state-dir=%s` deletes it.\n", l.Root)
	if err := os.WriteFile(l.Marker(), []byte(text), 0o644); err != nil {
		return fmt.Errorf("marking the state directory: %w", err)
	}
	return nil
}

// endProcesses kills all recorded processes. The nodes and the control plane end with the supervisor by the kernel's
// doing; this makes sure of it.
func endProcesses(ctx context.Context, l layout.Layout) error {
	recorded, err := process.Recorded(l.Processes())
	if err != nil {
		return err
	}
	if supervisor, found := recorded[Supervisor]; found {
		// First, as it would start the others again.
		if err := supervisor.End(ctx); err != nil {
			return fmt.Errorf("ending the supervisor: %w", err)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		if err := recorded[name].End(ctx); err != nil {
			errs = append(errs, fmt.Errorf("ending %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func removeCgroups(ctx context.Context, l layout.Layout) error {
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	if err := host.Remove(ctx, l.Cgroup()); err != nil {
		return err
	}
	before, saved, err := cgroup.LoadControllers(l.Controllers())
	if err != nil || !saved {
		return err
	}
	return host.RestoreControllers(before)
}

// removeMounts detaches mounts below the state directory. A node's mounts live
// in its own namespace and go with it, so there are none unless somebody else
// made them by hand, and then deleting the directory would follow them.
func removeMounts(l layout.Layout) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading the mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	points, err := mountsBelow(f, l.Root)
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(points) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}

// mountsBelow finds the mount points below dir in the text of proc(5)'s mountinfo, in the order of their mounting.
func mountsBelow(mountinfo io.Reader, dir string) ([]string, error) {
	var points []string
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	return points, nil
}
