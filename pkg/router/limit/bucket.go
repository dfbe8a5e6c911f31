// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"sync"
	"time"
)

// bucket is a limit with a minute's share at once. It may be overdrawn, and what was taken can be given back: the
// limiters of x/time/rate cannot take back a reservation in use. A nil bucket has no limit.
type bucket struct {
	perSecond, burst float64

	mu   sync.Mutex
	left float64
	at   time.Time // of left
}

func newBucket(perSecond float64, burst int) *bucket {
	return &bucket{perSecond: perSecond, burst: float64(burst), left: float64(burst)}
}

// refill adds the units since the last look. If the clock goes back, it adds nothing.
func (b *bucket) refill(now time.Time) {
	if now.After(b.at) {
		if !b.at.IsZero() {
			b.left = min(b.burst, b.left+now.Sub(b.at).Seconds()*b.perSecond)
		}
		b.at = now
	}
}

// wait is the time until a whole unit is there; 0 if it is.
func (b *bucket) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	return b.missing()
}

// take takes a unit. If there is none, it returns the time until there is one.
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

// add gives back a number, or takes it if the number is below 0.
func (b *bucket) add(now time.Time, n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	b.left = min(b.burst, b.left+n)
}
