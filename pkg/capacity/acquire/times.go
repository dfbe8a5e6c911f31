// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import "time"

// ShortestLook is the shortest time to the next look, because 0 means never.
const ShortestLook = 10 * time.Millisecond

// Earliest returns the earlier of two moments; zero stands for never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// lookAt returns the time to a next look; 0 for never.
func lookAt(next, now time.Time) time.Duration {
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(now), ShortestLook)
}
