// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// comm is the controller's name as the kernel cuts it.
const comm = "modelberth-cont"

// Lines of a process's status.
const (
	resident  = "VmRSS:"
	highWater = "VmHWM:"
)

// memory returns the current and the peak memory of a replica of the controller, in bytes, each the largest among the
// replicas below the control group.
func memory(cgroup string) (now, peak int64, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, 0, fmt.Errorf("listing processes: %w", err)
	}
	for _, dir := range dirs {
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != comm {
			continue // another program, or an ended one
		}
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(groups), cgroup) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			continue
		}
		has, err := lineOf(string(status), resident)
		if err != nil {
			return 0, 0, fmt.Errorf("%s/status: %w", dir, err)
		}
		had, err := lineOf(string(status), highWater)
		if err != nil {
			return 0, 0, fmt.Errorf("%s/status: %w", dir, err)
		}
		now, peak = max(now, has), max(peak, had)
	}
	if peak == 0 {
		return 0, 0, fmt.Errorf("no process %s runs in control group %s", comm, cgroup)
	}
	return now, peak, nil
}

// lineOf reads a line of a process's status, in bytes.
func lineOf(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, name); found {
			kibibytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("line %q: %w", strings.TrimSpace(line), err)
			}
			return kibibytes << 10, nil
		}
	}
	return 0, fmt.Errorf("there is no line %s", strings.TrimSuffix(name, ":"))
}
