// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// conflictDelay lets the cache catch up with the write that got in between, and longestBehind is the longest
	// time between two looks at one that does not.
	conflictDelay = 200 * time.Millisecond
	longestBehind = 10 * time.Second
)

// behind remembers since when passes over Workspaces end because the cache is behind what is known. Most often it
// catches up at once. A watch that lags for longer is asked half as often each time: every such pass may cost a
// request, and none of them gets anywhere.
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

// over says that a pass got through.
func (b *behind) over(workspace types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, workspace)
}
