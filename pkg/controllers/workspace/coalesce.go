// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	"golang.org/x/time/rate" // maintained by the Go team
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
)

const (
	// progressPeriod is the shortest time from a write of a Workspace's status to the next write that shows only
	// progress. A start has a dozen stages, many of them a second apart, and each write costs the API server some
	// milliseconds.
	progressPeriod = 10 * time.Second
	// progressDelay is the shortest time for which progress waits for more progress. A machine is usable a second
	// or two after it registers, and a usable machine is reported at once: one write then shows both. An engine that
	// answers first waits for its machines equally long.
	progressDelay = 3 * time.Second
	// progressRate is the number of writes per second, over all Workspaces, that show only progress or usable
	// machines. If many Workspaces start at once, more such writes would delay their machines and pods. A few
	// starts never exceed the burst.
	progressRate  = 5
	progressBurst = 10
	// mostCoalesced bounds the Workspaces that a coalescer remembers.
	mostCoalesced = 10_000
)

// coalescer decides when progress of a Workspace is worth a write of its status. If it forgets a Workspace, or
// starts empty after a restart, progress waits progressDelay once more.
type coalescer struct {
	clock   clock.PassiveClock
	entries *cache.LRUExpireCache // of coalesced, by UID
	budget  *rate.Limiter
}

// coalesced is the state of one Workspace in a coalescer. A zero time is unknown.
type coalesced struct {
	// written is when the status was last written.
	written time.Time
	// since is when the first unwritten news appeared, and answering is when an engine first answered too early.
	since, answering time.Time
	// turn is the reservation in the budget, and due its time. turn is nil before the first wait is over.
	turn *rate.Reservation
	due  time.Time
}

func newCoalescer(clock clock.PassiveClock) *coalescer {
	return &coalescer{
		clock: clock, entries: cache.NewLRUExpireCacheWithClock(mostCoalesced, clock),
		budget: rate.NewLimiter(progressRate, progressBurst),
	}
}

// waitFor returns how long the change of a status waits; 0 if it may be written now.
func (c *coalescer) waitFor(workspace types.UID, before, after *v1beta1.WorkspaceStatus, events int) time.Duration {
	switch {
	case events == 0 && status.IsProgress(before, after):
		return c.wait(workspace)
	case events <= 1 && status.AreMachinesUsable(before, after): // the one event reports the same
		return c.takeTurn(workspace)
	}
	if same, isEarly := status.AnswersEarly(before, after); isEarly && events <= same { // the next write says Ready, too
		return c.waitForReady(workspace)
	}
	return 0
}

// waitForReady returns the remaining time for which an answering engine waits for its machines and its endpoint.
// Earlier progress does not shorten it.
func (c *coalescer) waitForReady(workspace types.UID) time.Duration {
	return max(0, c.left(workspace, func(of *coalesced) *time.Time { return &of.answering }))
}

// wait returns how long progress of a Workspace must wait; 0 if it may be written now.
func (c *coalescer) wait(workspace types.UID) time.Duration {
	delay, now := c.delay(workspace), c.clock.Now()
	if wait := max(progressPeriod-now.Sub(c.recall(workspace).written), delay); wait > 0 {
		return wait
	}
	return c.takeTurn(workspace)
}

// delay returns how much is left of the time for which news of a Workspace waits for more; below 0 if it is over.
func (c *coalescer) delay(workspace types.UID) time.Duration {
	return c.left(workspace, func(of *coalesced) *time.Time { return &of.since })
}

// left returns how much is left of progressDelay since a time of a Workspace; below 0 if it is over. An unknown time is
// set to the present one.
func (c *coalescer) left(workspace types.UID, of func(*coalesced) *time.Time) time.Duration {
	known, now := c.recall(workspace), c.clock.Now()
	since := of(&known)
	if since.IsZero() {
		*since = now
		c.remember(workspace, known)
	}
	return progressDelay - now.Sub(*since)
}

// takeTurn returns how long a Workspace must wait for its turn in the common budget; 0 if it may be written now.
func (c *coalescer) takeTurn(workspace types.UID) time.Duration {
	known, now := c.recall(workspace), c.clock.Now()
	if known.turn == nil {
		known.turn = c.budget.ReserveN(now, 1)
		known.due = now.Add(known.turn.DelayFrom(now))
		c.remember(workspace, known)
	}
	return max(0, known.due.Sub(now))
}

// wrote notes a write of a Workspace's status. A write with more than progress gives a reserved turn back.
func (c *coalescer) wrote(workspace types.UID) {
	now := c.clock.Now()
	if known := c.recall(workspace); known.turn != nil && known.due.After(now) {
		known.turn.CancelAt(now)
	}
	c.remember(workspace, coalesced{written: now})
}

func (c *coalescer) recall(workspace types.UID) coalesced {
	value, _ := c.entries.Get(workspace)
	known, _ := value.(coalesced)
	return known
}

// remember keeps an entry longer than any wait, so that a late pass does not start the wait again.
func (c *coalescer) remember(workspace types.UID, entry coalesced) {
	c.entries.Add(workspace, entry, 10*progressPeriod+max(0, entry.due.Sub(c.clock.Now())))
}
