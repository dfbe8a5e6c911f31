// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cooldown_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func offer(name string) refusal.Offering {
	return refusal.Offering{InstanceType: name, Family: "family-" + name, CapacityType: v1beta1.CapacityOnDemand}
}

// refusedFor returns an attempt whose machine type is cooling down for a while.
func refusedFor(name string, cooldown time.Duration) refusal.Attempt {
	return refusal.Attempt{
		Offering: offer(name), Started: start.Add(-time.Minute), Ended: start, Cause: refusal.Quota, Cooldown: cooldown,
		Scope: refusal.Scope{Breadth: refusal.SKU, Name: name, Zone: refusal.Any, CapacityType: v1beta1.CapacityOnDemand},
	}
}

func TestExclusionsAndReopens(t *testing.T) {
	memory := &cooldown.Memory{}
	memory.Learn(start, refusedFor("a", 10*time.Minute), refusedFor("b", time.Hour), refusedFor("c", 2*time.Hour))
	got := memory.Exclusions(start, refusal.Asker{}, slices.Values([]refusal.Offering{offer("a"), offer("b"), offer("c"), offer("d")}))
	want := []cooldown.Exclusion{
		{Offering: offer("a"), Until: start.Add(10 * time.Minute), Cause: refusal.Quota},
		{Offering: offer("b"), Until: start.Add(time.Hour), Cause: refusal.Quota},
		{Offering: offer("c"), Until: start.Add(2 * time.Hour), Cause: refusal.Quota},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	needs := func(name string) func([]cooldown.Exclusion) bool {
		return func(left []cooldown.Exclusion) bool {
			for _, e := range left {
				if e.Offering.InstanceType == name {
					return false
				}
			}
			return name != "none"
		}
	}
	for name, after := range map[string]time.Duration{"a": 10 * time.Minute, "b": time.Hour, "c": 2 * time.Hour} {
		if at := cooldown.Reopens(got, needs(name)); !at.Equal(start.Add(after)) {
			t.Errorf("what needs %s may be asked for at %s, want %s", name, at, start.Add(after))
		}
	}
	if at := cooldown.Reopens(got, needs("none")); !at.IsZero() {
		t.Errorf("what nothing serves may be asked for at %s, want never", at)
	}
}

// TestMemoryFromTheFuture: one attempt with a time from a wrong clock must not remove the memory of all others.
func TestMemoryFromTheFuture(t *testing.T) {
	far := refusedFor("b", time.Hour)
	far.Started, far.Ended = start.AddDate(5, 0, 0), start.AddDate(5, 0, 0)
	memory := &cooldown.Memory{}
	err := memory.Load(start, func() ([]refusal.Attempt, error) {
		return []refusal.Attempt{refusedFor("a", time.Hour), far}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	left := memory.Exclusions(start, refusal.Asker{}, slices.Values([]refusal.Offering{offer("a"), offer("b")}))
	if len(left) != 1 || left[0].Offering.InstanceType != "a" {
		t.Errorf("left alone: %+v, want a", left)
	}
}

func TestMemoryLoadsOnce(t *testing.T) {
	memory := &cooldown.Memory{}
	memory.Learn(start, refusedFor("a", time.Hour))
	loads := 0
	load := func() ([]refusal.Attempt, error) {
		loads++
		return []refusal.Attempt{refusedFor("a", time.Hour), refusedFor("b", time.Hour)}, nil
	}
	for range 2 {
		if err := memory.Load(start, load); err != nil {
			t.Fatal(err)
		}
		if got := memory.Active(start); got != 2 {
			t.Errorf("%d offers are left alone, want 2", got)
		}
	}
	if loads != 1 || memory.Active(start) != 2 || memory.Active(start.Add(2*time.Hour)) != 0 {
		t.Errorf("loaded %d times, active now %d, later %d; want 1, 2, 0",
			loads, memory.Active(start), memory.Active(start.Add(2*time.Hour)))
	}
}

// TestMemoryHasOneAskFirst: after a cooldown, one Workspace requests the offer, and the others wait for the result.
func TestMemoryHasOneAskFirst(t *testing.T) {
	after := start.Add(time.Hour)
	asks := func(workspace types.UID, name string, began time.Time) refusal.Attempt {
		return refusal.Attempt{Asker: refusal.Asker{Workspace: workspace}, Offering: offer(name), Started: began}
	}
	tests := []struct {
		reason string
		then   func(*cooldown.Memory)
		at     time.Time
		name   string
		may    bool
	}{
		{"the first asks", func(*cooldown.Memory) {}, after, "a", true},
		{"another one is on its way", func(m *cooldown.Memory) { m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a")) }, after, "a", false},
		{"a restart learns that another one is on its way", func(m *cooldown.Memory) { m.Learn(start, asks("x", "a", after)) }, after, "a", false},
		{"its own former try", func(m *cooldown.Memory) { m.Ask(after, refusal.Asker{Workspace: "me"}, offer("a")) }, after, "a", true},
		{"another offer", func(m *cooldown.Memory) { m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a")) }, after, "b", true},
		{"it was asked for before the cooldown had passed", func(m *cooldown.Memory) { m.Learn(start, asks("x", "a", start)) }, after, "a", true},
		{"nothing was heard for too long", func(m *cooldown.Memory) { m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a")) }, after.Add(16 * time.Minute), "a", true},
		{"the other one is gone", func(m *cooldown.Memory) { m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a")); m.Forget("x") }, after, "a", true},
		{"the other one has got it", func(m *cooldown.Memory) {
			m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a"))
			got := asks("x", "a", after)
			got.Ended = after.Add(time.Minute)
			m.Learn(start, got)
		}, after.Add(2 * time.Minute), "a", true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			memory := &cooldown.Memory{}
			memory.Learn(start, refusedFor("a", time.Hour))
			test.then(memory)
			excluded := memory.Exclusions(test.at, refusal.Asker{Workspace: "me"}, slices.Values([]refusal.Offering{offer(test.name)}))
			if may := memory.Ask(test.at, refusal.Asker{Workspace: "me"}, offer(test.name)); may != test.may || (len(excluded) == 0) != test.may {
				t.Errorf("it may ask: %t, left alone: %v; want %t", may, excluded, test.may)
			}
		})
	}
}
