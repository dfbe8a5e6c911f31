// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"testing"
	"time"
)

// TestRoom checks the limits of requests and bytes, for all models, per model and per key.
func TestRoom(t *testing.T) {
	type entry struct {
		model, key string
		bytes      int64
		full       Full
	}
	cases := []struct {
		reason  string
		limits  Limits
		entries []entry
	}{
		{"closed", Limits{Bytes: 100}, []entry{{"a", "", 1, FullForModel}}},
		{"a model has half of the requests", Limits{Requests: 4, Bytes: 100}, []entry{{"a", "", 1, ""}, {"a", "", 1, ""}, {"a", "", 1, FullForModel}, {"b", "", 1, ""}}},
		{"all have the whole", Limits{Requests: 3, Bytes: 100}, []entry{{"a", "", 1, ""}, {"b", "", 1, ""}, {"c", "", 1, ""}, {"d", "", 1, FullForAll}}},
		{"one place is for any model", Limits{Requests: 1, Bytes: 100}, []entry{{"a", "k", 1, ""}, {"b", "l", 1, FullForAll}}},
		{"a model has half of the bytes", Limits{Requests: 9, Bytes: 100}, []entry{{"a", "", 50, ""}, {"a", "", 1, FullForModel}, {"b", "", 50, ""}, {"c", "", 1, FullForAll}}},
		{
			"a key has half of a model's requests, and leaves the rest to others",
			Limits{Requests: 8, Bytes: 100},
			[]entry{{"a", "k", 1, ""}, {"a", "k", 1, ""}, {"a", "k", 1, FullForKey}, {"a", "l", 1, ""}, {"a", "l", 1, ""}, {"a", "m", 1, FullForModel}, {"b", "k", 1, ""}},
		},
		{
			"a key has half of all requests, over all models",
			Limits{Requests: 4, Bytes: 100},
			[]entry{{"a", "k", 1, ""}, {"b", "k", 1, ""}, {"c", "k", 1, FullForKey}, {"c", "l", 1, ""}},
		},
		{
			"a key has half of a model's bytes",
			Limits{Requests: 100, Bytes: 100},
			[]entry{{"a", "k", 25, ""}, {"a", "k", 1, FullForKey}, {"b", "k", 25, ""}, {"c", "k", 1, FullForKey}, {"a", "l", 25, ""}},
		},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			r := New(c.limits)
			now := time.Unix(1, 0)
			var places []*Place
			for i, e := range c.entries {
				place, full := r.Enter(Request{e.model, e.key, e.bytes})
				if full != e.full || (place == nil) != (full != "") {
					t.Errorf("entry %d: the limit of %q is reached, want %q", i, full, e.full)
				}
				if place != nil {
					places = append(places, place)
				}
			}
			for _, place := range places {
				place.Leave(false, now)
				place.Leave(false, now)
			}
			if requests, bytes := r.Held(); requests != 0 || bytes != 0 || len(r.byModel) != 0 || len(r.byKey) != 0 {
				t.Errorf("%d requests, %d bytes, %d models and %d keys are left", requests, bytes, len(r.byModel), len(r.byKey))
			}
		})
	}
}

// TestEstimate checks that the estimate follows the last start.
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
	enter := func(now time.Time) *Place {
		place, full := r.Enter(Request{Model: "a", Bytes: 1})
		if full != "" {
			t.Fatal(full)
		}
		place.AwaitStart(now)
		place.AwaitStart(now.Add(time.Second))
		return place
	}
	first, second := enter(at(0)), enter(at(30))
	expect("the first start is under way", at(40), 0, false)
	adapter, full := r.Enter(Request{Model: "a", Bytes: 1})
	if full != "" {
		t.Fatal(full)
	}
	first.Leave(true, at(60))
	second.Leave(true, at(61))
	expect("after a start", at(100), time.Minute, true)
	third := enter(at(200))
	expect("during the next one", at(240), 20*time.Second, true)
	expect("a start that takes longer than the last one", at(300), 0, true)
	third.Leave(false, at(300))
	expect("after a start that nobody saw the end of", at(300), time.Minute, true)
	adapter.Leave(false, at(400))
	expect("after a wait for an adapter, longer than a start", at(400), time.Minute, true)
}
