// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modelberth/modelberth/test/localcloud/process"
)

// comm is the controller's name as the kernel cuts it.
const comm = "modelberth-cont"

// Lines of a process's status.
const (
	resident  = "VmRSS:"
	highWater = "VmHWM:"
)

// replica is a process of the controller.
type replica struct {
	process.Identity
	// pod is the name of its pod.
	pod string
	// now and peak are its memory in bytes, and used is its processor time since it started.
	now, peak int64
	used      time.Duration
}

// replicas returns the running replicas below the control group.
func replicas(cgroup string) ([]replica, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var out []replica
	for _, dir := range dirs {
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != comm {
			continue // another program, or an ended one
		}
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(groups), cgroup) {
			continue
		}
		found, err := readReplica(dir)
		if errors.Is(err, errEnded) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", dir, err)
		}
		out = append(out, found)
	}
	return out, nil
}

// errEnded is the error of a process that has ended meanwhile.
var errEnded = errors.New("the process has ended")

// readReplica reads the directory of a process.
func readReplica(dir string) (out replica, err error) {
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return out, err
	}
	if out.Identity, err = process.Identify(pid); err != nil {
		return out, errors.Join(errEnded, err)
	}
	var files [2][]byte
	for i, name := range []string{"environ", "status"} {
		if files[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return out, errors.Join(errEnded, err)
		}
	}
	if !bytes.Contains(files[1], []byte(resident)) {
		return out, errEnded // it has no memory any more
	}
	for variable := range strings.SplitSeq(string(files[0]), "\x00") {
		if pod, found := strings.CutPrefix(variable, "HOSTNAME="); found {
			out.pod = pod
		}
	}
	if out.now, err = lineOf(string(files[1]), resident); err != nil {
		return out, err
	}
	if out.peak, err = lineOf(string(files[1]), highWater); err != nil {
		return out, err
	}
	if out.used, err = usedBy(pid); err != nil {
		return out, errors.Join(errEnded, err)
	}
	return out, nil
}

// processOf returns the process of the leader.
func processOf(cgroup string, leader leadership) (process.Identity, error) {
	all, err := replicas(cgroup)
	if err != nil {
		return process.Identity{}, err
	}
	for _, r := range all {
		if r.pod != "" && strings.HasPrefix(leader.holder, r.pod+"_") {
			return r.Identity, nil
		}
	}
	return process.Identity{}, fmt.Errorf("no process of control group %s belongs to %s", cgroup, leader.holder)
}

// memory returns the current and the peak memory of a replica of the controller, in bytes, each the largest among the
// replicas below the control group.
func memory(cgroup string) (now, peak int64, err error) {
	all, err := replicas(cgroup)
	if err != nil {
		return 0, 0, err
	}
	for _, r := range all {
		now, peak = max(now, r.now), max(peak, r.peak)
	}
	if peak == 0 {
		return 0, 0, fmt.Errorf("no process %s runs in control group %s", comm, cgroup)
	}
	return now, peak, nil
}

// used returns the processor time of all running replicas since they started.
func used(cgroup string) (time.Duration, error) {
	all, err := replicas(cgroup)
	var sum time.Duration
	for _, r := range all {
		sum += r.used
	}
	return sum, err
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

// tick is the unit of processor times in proc(5), on every architecture of Linux.
const tick = 10 * time.Millisecond

// usedBy returns the processor time of a running process.
func usedBy(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return processorTime(stat)
}

// processorTime reads the user and system time from the text of /proc/PID/stat. The name in it is in brackets and may
// contain brackets and blanks.
func processorTime(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const user, system = 11, 12 // fields 14 and 15 of proc(5), counted after the name
	if len(fields) <= system {
		return 0, fmt.Errorf("%d fields after the process name in %q", len(fields), stat)
	}
	var sum time.Duration
	for _, field := range []string{fields[user], fields[system]} {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time %q: %w", field, err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}
