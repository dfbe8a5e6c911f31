// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the kernel's unit of processor time on Linux.
const tick = time.Second / 100

// tree is a process and its children: a master and its workers.
func tree(pid int) ([]int, error) {
	out := []int{pid}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for field := range strings.FieldsSeq(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		out = append(out, child)
	}
	return out, err
}

// sum adds a figure of all processes of a side.
func sum[N int64 | time.Duration](s *side, read func(pid int) (N, error)) (total N, err error) {
	if s.pid == 0 {
		return 0, nil
	}
	all, err := tree(s.pid)
	if err != nil {
		return 0, err
	}
	for _, pid := range all {
		one, err := read(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		total += one
	}
	return total, nil
}

// cpu is the processor time that a side has taken.
func (s *side) cpu() (time.Duration, error) {
	return sum(s, func(pid int) (time.Duration, error) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		return processorTime(text)
	})
}

// processorTime reads the 14th and 15th field of /proc/PID/stat. The second one is a name in parentheses, with any text.
func processorTime(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("unknown format of processor times: %q", stat)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err
}

// memory is the memory of a side. Pages that its processes share are counted once.
func (s *side) memory() (int64, error) {
	return sum(s, func(pid int) (int64, error) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		return shareOfPages(string(text))
	})
}

// shareOfPages reads the line Pss of /proc/PID/smaps_rollup.
func shareOfPages(text string) (int64, error) {
	_, after, found := strings.Cut(text, "\nPss:")
	fields := strings.Fields(after)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("unknown format of memory: %q", text)
	}
	kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
	return kilobytes << 10, err
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
