// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lock lets one program at a time change a cloud. The kernel holds the lock on a file and releases it when the
// holder ends, however it ends; the file's content is only information about the holder. The package decides between
// waiting and refusal, and must not know clouds.
package lock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// retryInterval is the pause between two tries for a lock in use.
const retryInterval = 50 * time.Millisecond

// Holder describes the program with the lock.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Dir     string    `json:"dir"`
	Since   time.Time `json:"since"`
	// Keeps means the program keeps the lock until it ends, so others are refused and do not wait.
	Keeps bool `json:"keeps,omitempty"`
}

// Self is this program as a holder.
func Self(command string, keeps bool) Holder {
	dir, err := os.Getwd()
	if err != nil {
		dir = "unknown"
	}
	return Holder{PID: os.Getpid(), Command: command, Dir: dir, Since: time.Now(), Keeps: keeps}
}

// String names the program for a person.
func (h Holder) String() string {
	if h.PID == 0 {
		return "another program"
	}
	return fmt.Sprintf("%s (process %d in %s, since %s)", h.Command, h.PID, h.Dir, h.Since.Local().Format(time.DateTime))
}

// HeldError reports a lock kept by its holder.
type HeldError struct {
	Path   string
	Holder Holder
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is held by %s: wait until that ends, or end it with: kill %d", e.Path, e.Holder, e.Holder.PID)
}

// Lock is a held lock.
type Lock struct{ file *os.File }

// Acquire takes the lock at path. It waits for a temporary holder, after one call of waiting, and returns a
// *HeldError if the holder keeps the lock.
func Acquire(ctx context.Context, path string, self Holder, waiting func(Holder)) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the lock: %w", err)
	}
	ticker := time.NewTicker(retryInterval)
	defer ticker.Stop()
	for first := true; ; first = false {
		held, err := try(path)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if held != nil {
			if err := held.write(self); err != nil {
				held.Release()
				return nil, fmt.Errorf("writing the lock %s: %w", path, err)
			}
			return held, nil
		}
		other := read(path)
		if other.Keeps {
			return nil, &HeldError{Path: path, Holder: other}
		}
		if first {
			waiting(other)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s, which holds %s: %w", other, path, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Release gives the lock up and removes its file.
func (l *Lock) Release() {
	// The file is removed first, while the lock is still held.
	_ = os.Remove(l.file.Name())
	_ = l.file.Close()
}

// try returns nil if another program holds the lock.
func try(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	if !isAt(file, path) {
		_ = file.Close()
		return nil, nil
	}
	return &Lock{file: file}, nil
}

// isAt reports whether the file was not removed, by the holder before, between its opening and its locking.
func isAt(file *os.File, path string) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

func (l *Lock) write(self Holder) error {
	data, err := json.Marshal(self)
	if err == nil {
		err = l.file.Truncate(0)
	}
	if err == nil {
		_, err = l.file.WriteAt(append(data, '\n'), 0)
	}
	return err
}

// read returns the zero Holder if the holder has not written its record yet.
func read(path string) Holder {
	var h Holder
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}
