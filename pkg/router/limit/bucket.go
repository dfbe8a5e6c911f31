// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"sync"
	"time"
)

// bucket is a token bucket for the units of one minute. It may be overdrawn, and a caller can give units back.
// x/time/rate does not fit, because its reservations cannot be returned once in use. A nil bucket means no limit.
type bucket struct {
	perSecond, burst float64

	mu   sync.Mutex
	left float64
	at   time.Time // when left was computed
}

func newBucket(perSecond float64, burst int) *bucket {
	return &bucket{perSecond: perSecond, burst: float64(burst), left: float64(burst)}
}

// refill adds the units for the time since the last refill. If the clock goes back, it adds nothing.
func (b *bucket) refill(now time.Time) {
	if now.After(b.at) {
		if !b.at.IsZero() {
			b.left = min(b.burst, b.left+now.Sub(b.at).Seconds()*b.perSecond)
		}
		b.at = now
	}
}

// wait returns the time until one unit is available; 0 if it already is.
func (b *bucket) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	return b.missing()
}

// take takes one unit. If none is available, it returns the time until one is.
func (b *bucket) take(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	wait := b.missing()
	if wait == 0 {
		b.left--
	}
	return wait
}

func (b *bucket) missing() time.Duration {
	if b.left >= 1 {
		return 0
	}
	return max(time.Second, time.Duration((1-b.left)/b.perSecond*float64(time.Second)))
}

// add returns n units to the bucket, or takes them if n is negative.
func (b *bucket) add(now time.Time, n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	b.left = min(b.burst, b.left+n)
}
