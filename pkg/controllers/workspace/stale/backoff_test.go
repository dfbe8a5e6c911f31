// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestBackoff(t *testing.T) {
	start := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	b, key := NewBackoff(), types.NamespacedName{Namespace: "a", Name: "chat"}
	looks := func(count int) []time.Duration {
		var out []time.Duration
		now := start
		for range count {
			wait := b.Next(key, now)
			out, now = append(out, wait), now.Add(wait)
		}
		return out
	}
	ms := time.Millisecond
	want := []time.Duration{200 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 10 * time.Second, 10 * time.Second}
	if diff := cmp.Diff(want, looks(len(want))); diff != "" {
		t.Errorf("a watch that lags (-want +got):\n%s", diff)
	}
	if got, want := b.Lasted(key, start.Add(time.Minute)), time.Minute; got != want {
		t.Errorf("lasted %s, want %s", got, want)
	}
	b.Reset(key)
	if got := b.Lasted(key, start.Add(time.Minute)); got != 0 {
		t.Errorf("lasted %s once it had caught up", got)
	}
	if diff := cmp.Diff(want[:2], looks(2)); diff != "" {
		t.Errorf("once it had caught up (-want +got):\n%s", diff)
	}
	b.Reset(key)
	if len(b.since) != 0 {
		t.Errorf("kept for good: %v", b.since)
	}
}
