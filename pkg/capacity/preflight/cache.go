// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/lookup"
)

const (
	// keepFor is how long the result of a read is reused for all Workspaces.
	keepFor = 10 * time.Minute
	// keepBadFor is how long it is reused after a failed check. It ends before the check is retried, so each retry
	// reads again.
	keepBadFor = retry - 5*time.Second
	// mostKept bounds the cache, which has one entry for DaemonSets and two per node class.
	mostKept = 128
)

// readCache keeps the results of reads, because all Workspaces need the same ones. It holds no lock during a read. Of
// several concurrent callers, one reads and the others wait briefly. A failed read is not repeated for a few seconds.
type readCache struct {
	clock clock.PassiveClock
	reads lookup.Reads
	kept  *utilcache.LRUExpireCache
}

// kept is a value with the time of its read.
type kept struct {
	value any
	at    time.Time
}

func newReadCache(clock clock.PassiveClock) *readCache {
	return &readCache{clock: clock, kept: utilcache.NewLRUExpireCacheWithClock(mostKept, clock)}
}

// source is something to read, with its name in errors.
type source[T any] struct {
	name string
	read func(context.Context) (T, error)
}

// problemOf returns the problem that find reports about a source; empty if there is none.
func problemOf[T any](ctx context.Context, cache *readCache, from source[T], find func(T) string) (string, error) {
	for {
		now := cache.clock.Now()
		if value, age, isKept := keptValue[T](cache, from.name, now); isKept {
			if problem := find(value); problem == "" || age < keepBadFor {
				return problem, nil
			}
		}
		var value T
		isOurs, err := cache.reads.Do(ctx, from.name, now, func(ctx context.Context) error {
			var err error
			if value, err = from.read(ctx); err == nil {
				cache.kept.Add(from.name, kept{value, now}, keepFor)
			}
			return err
		})
		if err != nil {
			return "", err
		}
		if isOurs {
			return find(value), nil
		}
	}
}

// keptValue returns the kept value of a source, with its age. It returns none if the clock was set back since.
func keptValue[T any](cache *readCache, name string, now time.Time) (value T, age time.Duration, isKept bool) {
	found, _ := cache.kept.Get(name)
	entry, isKept := found.(kept)
	if !isKept || now.Before(entry.at) {
		return value, 0, false
	}
	value, isKept = entry.value.(T)
	return value, now.Sub(entry.at), isKept
}
