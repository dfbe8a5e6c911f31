// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// controllerProcess is the name of the controller's process as the kernel keeps it, in 15 characters.
const controllerProcess = "modelberth-cont"

// crash ends the controller's process in a pod at once: it cannot give its lease back, as after a lost
// machine. The local cloud's nodes are namespaces of this machine, so their processes are seen here.
func crash(pod types.UID) error { return kill9(pod, controllerProcess) }

// kill9 ends the processes of that name in a pod.
func kill9(pod types.UID, process string) error {
	entries, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	killed := 0
	for _, entry := range entries {
		dir := filepath.Dir(entry)
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != process {
			continue // gone, or somebody else
		}
		groups, err := os.ReadFile(entry)
		if err != nil || !strings.Contains(string(groups), string(pod)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}
		if err := killAndWait(pid); err != nil {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("no process %s of pod %s runs on this machine", process, pod)
	}
	return nil
}

// killAndWait ends a process, and returns once its sockets are closed. Until then, the kernel accepts connections for it.
func killAndWait(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return err
	}
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a file descriptor is small
	for {
		n, err := unix.Poll(ended, int(commandTimeout.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("it has not ended within %s", commandTimeout)
		}
		return nil
	}
}
