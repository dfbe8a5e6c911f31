// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"testing"
	"time"
)

// TestRoom bounds requests and bytes, for all models and for each.
func TestRoom(t *testing.T) {
	type entry struct {
		model string
		bytes int64
		fits  bool
	}
	cases := []struct {
		reason  string
		limits  Limits
		entries []entry
	}{
		{"closed", Limits{Bytes: 100}, []entry{{"a", 1, false}}},
		{"a model has half of the requests", Limits{Requests: 4, Bytes: 100}, []entry{{"a", 1, true}, {"a", 1, true}, {"a", 1, false}, {"b", 1, true}}},
		{"all have the whole", Limits{Requests: 3, Bytes: 100}, []entry{{"a", 1, true}, {"b", 1, true}, {"c", 1, true}, {"d", 1, false}}},
		{"one place is for any model", Limits{Requests: 1, Bytes: 100}, []entry{{"a", 1, true}, {"b", 1, false}}},
		{"a model has half of the bytes", Limits{Requests: 9, Bytes: 100}, []entry{{"a", 50, true}, {"a", 1, false}, {"b", 50, true}, {"c", 1, false}}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			r := New(c.limits)
			now := time.Unix(1, 0)
			var places []*Place
			for i, e := range c.entries {
				place := r.Enter(e.model, e.bytes, now)
				if (place != nil) != e.fits {
					t.Errorf("entry %d fits: %t, want %t", i, place != nil, e.fits)
				}
				if place != nil {
					places = append(places, place)
				}
			}
			for _, place := range places {
				place.Leave(false, now)
				place.Leave(false, now)
			}
			if requests, bytes := r.Held(); requests != 0 || bytes != 0 || len(r.byModel) != 0 {
				t.Errorf("%d requests, %d bytes and %d models are left", requests, bytes, len(r.byModel))
			}
		})
	}
}

// TestEstimate learns from the last start.
func TestEstimate(t *testing.T) {
	r := New(Limits{Requests: 10, Bytes: 100})
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	expect := func(reason string, now time.Time, want time.Duration, ok bool) {
		t.Helper()
		if got, isKnown := r.Estimate("a", now); got != want || isKnown != ok {
			t.Errorf("%s: %s, %t; want %s, %t", reason, got, isKnown, want, ok)
		}
	}
	expect("no start was seen", at(0), 0, false)
	first, second := r.Enter("a", 1, at(0)), r.Enter("a", 1, at(30))
	expect("the first start is under way", at(40), 0, false)
	first.Leave(true, at(60))
	second.Leave(true, at(61))
	expect("after a start", at(100), time.Minute, true)
	third := r.Enter("a", 1, at(200))
	expect("during the next one", at(240), 20*time.Second, true)
	expect("a start that takes longer than the last one", at(300), 0, true)
	third.Leave(false, at(300))
	expect("after a start that nobody saw the end of", at(300), time.Minute, true)
}
