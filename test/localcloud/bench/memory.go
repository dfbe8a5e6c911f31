// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// comm is the controller's name as the kernel cuts it.
const comm = "modelberth-cont"

// highWater is the most memory in bytes that any replica of the controller has
// had so far, of those that run below the control group.
func highWater(cgroup string) (int64, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	var most int64
	for _, dir := range dirs {
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != comm {
			continue // another program, or one that has ended meanwhile
		}
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(groups), cgroup) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			continue
		}
		bytes, err := parseHighWater(string(status))
		if err != nil {
			return 0, fmt.Errorf("%s/status: %w", dir, err)
		}
		most = max(most, bytes)
	}
	if most == 0 {
		return 0, fmt.Errorf("no process %s runs in control group %s", comm, cgroup)
	}
	return most, nil
}

// parseHighWater reads the line VmHWM of a process's status.
func parseHighWater(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kibibytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
			}
			return kibibytes << 10, nil
		}
	}
	return 0, errors.New("there is no line VmHWM")
}
