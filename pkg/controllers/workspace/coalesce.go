// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// progressPeriod is the shortest time from a write of a Workspace's status to one with mere progress. A start has
	// a dozen stages, many of them a second apart, and each write costs the API server some milliseconds.
	progressPeriod = 10 * time.Second
	// mostStatusWrites bounds how many Workspaces have the time of their last write remembered. Progress of the
	// others is written at once.
	mostStatusWrites = 10_000
)

// progressWait returns how long progress of a Workspace has to wait; 0 if it may be written now. The time of the
// last write may be lost: progress is then written at once.
func progressWait(writes *cache.LRUExpireCache, workspace types.UID, now time.Time) time.Duration {
	value, _ := writes.Get(workspace)
	last, isKnown := value.(time.Time)
	if !isKnown {
		return 0
	}
	return max(0, progressPeriod-now.Sub(last))
}
