// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// progressPeriod is the shortest time from a write of a Workspace's status to one with mere progress. A start has
	// a dozen stages, many of them a second apart, and each write costs the API server some milliseconds.
	progressPeriod = 10 * time.Second
	// progressDelay is the shortest time that progress waits for more. A machine is usable a second or two after it
	// registers, and a usable machine is reported at once: one write has both.
	progressDelay = 3 * time.Second
	// mostCoalesced bounds the Workspaces that a coalescer remembers.
	mostCoalesced = 10_000
)

// coalescer decides when progress of a Workspace is worth a write of its status. It may forget a Workspace, or be new
// after a restart: progress then waits progressDelay once more.
type coalescer struct {
	clock   clock.PassiveClock
	entries *cache.LRUExpireCache // of coalesced, by UID
}

// coalesced is what a coalescer remembers of a Workspace. A zero time is unknown.
type coalesced struct {
	// written is when the status was last written.
	written time.Time
	// since is when the first progress was seen that no write has.
	since time.Time
}

func newCoalescer(clock clock.PassiveClock) *coalescer {
	return &coalescer{clock: clock, entries: cache.NewLRUExpireCacheWithClock(mostCoalesced, clock)}
}

// wait returns how long progress of a Workspace has to wait; 0 if it may be written now.
func (c *coalescer) wait(workspace types.UID) time.Duration {
	value, _ := c.entries.Get(workspace)
	known, _ := value.(coalesced)
	now := c.clock.Now()
	if known.since.IsZero() {
		known.since = now
		c.remember(workspace, known)
	}
	return max(0, progressPeriod-now.Sub(known.written), progressDelay-now.Sub(known.since))
}

// wrote notes a write of a Workspace's status.
func (c *coalescer) wrote(workspace types.UID) {
	c.remember(workspace, coalesced{written: c.clock.Now()})
}

// remember keeps an entry for longer than any wait, so that a late pass does not start the wait again.
func (c *coalescer) remember(workspace types.UID, entry coalesced) {
	c.entries.Add(workspace, entry, 10*progressPeriod)
}
