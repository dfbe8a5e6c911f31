// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Identity names one process forever: a number alone is soon given to another.
type Identity struct {
	PID int `json:"pid"`
	// Start is the process's start time in clock ticks since the machine started.
	Start uint64 `json:"start"`
}

// Identify returns the identity of the process with the number now.
func Identify(pid int) (Identity, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Identity{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	start, state, err := parseStat(stat)
	if err != nil {
		return Identity{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	if state == 'Z' || state == 'X' {
		return Identity{}, fmt.Errorf("reading process %d: it has ended: %w", pid, os.ErrNotExist)
	}
	return Identity{PID: pid, Start: start}, nil
}

// parseStat reads state and start time from the text of /proc/PID/stat. The
// name in it is in brackets and may itself hold brackets and blanks.
func parseStat(stat []byte) (start uint64, state byte, err error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("no process name in %q", stat)
	}
	fields := strings.Fields(string(stat[end+1:]))
	const startField = 19 // field 22 of proc(5), counted after the name
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("%d fields after the process name in %q", len(fields), stat)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("start time %q: %w", fields[startField], err)
	}
	return start, fields[0][0], nil
}

// Alive reports whether the process still runs.
func (id Identity) Alive() bool {
	now, err := Identify(id.PID)
	return err == nil && now == id
}

// Signal sends a signal to the process, and to no later process of the same number.
func (id Identity) Signal(signal unix.Signal) error {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", id.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Checked after the open: from here on the number cannot change hands.
	if !id.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signalling process %d: %w", id.PID, err)
	}
	return nil
}

// End kills the process and waits until it is gone.
func (id Identity) End(ctx context.Context) error {
	if err := id.Signal(unix.SIGKILL); err != nil {
		return err
	}
	return id.AwaitEnd(ctx)
}

// AwaitEnd waits until the process is gone.
func (id Identity) AwaitEnd(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for id.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for process %d to end: %w", id.PID, ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

// RecordPath returns the file for the identity of the process called name.
func RecordPath(dir, name string) string { return filepath.Join(dir, name+".json") }

// Record writes the identity to a file for Recorded.
func (id Identity) Record(dir, name string) error {
	data, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("encoding the record of process %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("recording process %s: %w", name, err)
	}
	if err := os.WriteFile(RecordPath(dir, name), data, 0o644); err != nil {
		return fmt.Errorf("recording process %s: %w", name, err)
	}
	return nil
}

// Recorded reads the identities of all processes recorded in dir, by name. A
// record cut short by a crash is skipped: its process cannot be named.
func Recorded(dir string) (map[string]Identity, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading process records: %w", err)
	}
	found := map[string]Identity{}
	for _, entry := range entries {
		name, isRecord := strings.CutSuffix(entry.Name(), ".json")
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil || !isRecord {
			continue
		}
		var id Identity
		if json.Unmarshal(data, &id) == nil && id.PID > 0 {
			found[name] = id
		}
	}
	return found, nil
}
