// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// Reaper starts children as the first process of a process namespace must: the kernel hands it every orphan, so it
// alone collects them all and passes on the awaited ones.
type Reaper struct {
	mu      sync.Mutex
	waiting map[int]chan unix.WaitStatus
}

// NewReaper returns a reaper; Run makes it work.
func NewReaper() *Reaper { return &Reaper{waiting: map[int]chan unix.WaitStatus{}} }

// Start implements Starter.
func (r *Reaper) Start(cmd *exec.Cmd) (func() error, error) {
	// Locked over the start: a child that ends at once must not be collected before its waiter is registered.
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan unix.WaitStatus, 1)
	r.waiting[cmd.Process.Pid] = ended
	return func() error { return exitError(<-ended) }, nil
}

// Run collects ended children until ctx ends.
func (r *Reaper) Run(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	defer signal.Stop(signals)
	for {
		r.collect()
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
	}
}

// collect takes all ended children.
func (r *Reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			ended <- status
		}
	}
}

func exitError(status unix.WaitStatus) error {
	switch {
	case status.Signaled():
		return fmt.Errorf("killed by signal %s", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", status.ExitStatus())
	}
	return nil
}
