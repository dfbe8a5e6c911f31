// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
)

// unsettled holds files that have their final path but may not be on disk yet.
type unsettled struct {
	mu    sync.Mutex
	files []placed
}

type placed struct {
	target target
	at     place
}

func (u *unsettled) add(t target, at place) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.files = append(u.files, placed{t, at})
}

func (u *unsettled) take() []placed {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.files
	u.files = nil
	return taken
}

// Settle makes the files survive a crash of the machine, and marks them. The engine need not wait for Settle, which may
// take long on a slow disk. After a restart, an unmarked file is hashed again.
func (f *Fetcher) Settle(ctx context.Context) error {
	for _, file := range f.unsettled.take() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := file.at.settle(file.target); err != nil {
			return err
		}
	}
	return nil
}

func (at place) settle(t target) error {
	if err := at.volume.sync(at.path); err != nil {
		return err
	}
	return at.volume.writeMarker(at.path, t)
}
