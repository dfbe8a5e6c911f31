// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// fileLock is a file lock of this process. The kernel releases it when the process ends, even after a crash.
type fileLock struct{ file *os.File }

// tryLock returns a shared or an exclusive lock; nil if another process holds a conflicting one.
func tryLock(file *os.File, alone bool) (*fileLock, error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	got, err := flock(file, how)
	if got {
		return &fileLock{file}, nil
	}
	return nil, errors.Join(err, file.Close())
}

// share turns the lock into a shared lock. It returns false if another process took it first, and the lock is lost.
func (l *fileLock) share() (bool, error) { return flock(l.file, syscall.LOCK_SH) }

func (l *fileLock) release() error { return l.file.Close() }

func flock(file *os.File, how int) (bool, error) {
	for {
		switch err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, fmt.Errorf("locking: %w", err)
		}
	}
}
