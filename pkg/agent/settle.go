// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
)

// unsettled holds the files that are in place and may not yet be on disk.
type unsettled struct {
	mu      sync.Mutex
	targets []target
}

func (u *unsettled) add(t target) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.targets = append(u.targets, t)
}

func (u *unsettled) take() []target {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.targets
	u.targets = nil
	return taken
}

// Settle makes what Run has brought survive a crash of the machine, and marks it. The engine need not wait for it:
// a disk may be long in taking what memory already holds. A file that was not marked in time is hashed again.
func (f *Fetcher) Settle(ctx context.Context) error {
	for _, t := range f.unsettled.take() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f.volume.sync(t.file.Path); err != nil {
			return err
		}
		if err := f.volume.writeMarker(t.want, t); err != nil {
			return err
		}
	}
	return nil
}
