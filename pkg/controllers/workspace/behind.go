// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// conflictDelay lets the cache catch up with another write. longestBehind is the longest time between two looks
	// at a lagging cache.
	conflictDelay = 200 * time.Millisecond
	longestBehind = 10 * time.Second
)

// behind records since when passes end because the cache lags. Most often it catches up at once. If it does not, the
// time between two looks doubles: each such pass may cost a request and achieves nothing.
type behind struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

func newBehind() *behind { return &behind{since: map[types.NamespacedName]time.Time{}} }

// again returns when to look again: as long from now as it has lasted.
func (b *behind) again(workspace types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, isKnown := b.since[workspace]
	if !isKnown {
		since, b.since[workspace] = now, now
	}
	return min(max(now.Sub(since), conflictDelay), longestBehind)
}

// over records a completed pass.
func (b *behind) over(workspace types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, workspace)
}
