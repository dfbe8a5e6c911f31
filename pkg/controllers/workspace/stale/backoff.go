// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Delays between two passes over a lagging cache.
const (
	// ShortestDelay gives the cache time for another write.
	ShortestDelay = 200 * time.Millisecond
	// LongestDelay is the longest time between two passes.
	LongestDelay = 10 * time.Second
)

// Backoff records since when passes end early because the cache lags. Usually the cache catches up at once. If it does
// not, the time between two passes doubles, because each such pass may cost a request and achieves nothing.
type Backoff struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// NewBackoff returns a Backoff without delays.
func NewBackoff() *Backoff { return &Backoff{since: map[types.NamespacedName]time.Time{}} }

// Next returns the delay before the next pass: as long as the lag has lasted so far.
func (b *Backoff) Next(workspace types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, isKnown := b.since[workspace]
	if !isKnown {
		since, b.since[workspace] = now, now
	}
	return min(max(now.Sub(since), ShortestDelay), LongestDelay)
}

// Lasted returns how long passes have been ending early; zero after a completed pass.
func (b *Backoff) Lasted(workspace types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since, isKnown := b.since[workspace]; isKnown {
		return now.Sub(since)
	}
	return 0
}

// Reset records a completed pass.
func (b *Backoff) Reset(workspace types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, workspace)
}
