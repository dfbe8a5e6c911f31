// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package handover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/handover"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

var owner = capacity.Owner{Namespace: "team-a", Name: "chat", UID: "1"}

// backEnd has machines of owner. The cache may show fewer.
type backEnd struct {
	capacity.Absent
	name         string
	held, cached []string
	said         []string
	released     int
	looks        int
	broken       error
	// meanwhile is called once, during the release of the last machine.
	meanwhile func()
}

func (b *backEnd) Holders(context.Context) ([]capacity.Owner, error) {
	b.looks++
	if len(b.held) == 0 {
		return nil, b.broken
	}
	return []capacity.Owner{owner}, b.broken
}

func (b *backEnd) Observe(context.Context, capacity.Owner, []capacity.Created, string) ([]capacity.Machine, error) {
	var out []capacity.Machine
	for _, name := range b.cached {
		out = append(out, capacity.Machine{Name: name})
	}
	return out, nil
}

func (b *backEnd) Held(context.Context, capacity.Owner, []capacity.Created) ([]capacity.Machine, error) {
	var out []capacity.Machine
	for _, name := range b.held {
		out = append(out, capacity.Machine{Name: name})
	}
	return out, nil
}

func (b *backEnd) Names(_ capacity.Owner, attempt int32, _ int) ([]string, error) {
	return []string{fmt.Sprintf("%s-%d", b.name, attempt)}, nil
}

func (b *backEnd) Release(context.Context, capacity.Owner) ([]string, error) {
	b.released++
	if meanwhile := b.meanwhile; meanwhile != nil && len(b.held) == 0 {
		b.meanwhile = nil
		meanwhile()
	}
	left := b.held
	b.held, b.cached = nil, nil
	return left, nil
}

func (b *backEnd) MachineCosts(context.Context) ([]capacity.MachineCost, error) {
	var out []capacity.MachineCost
	for _, name := range b.cached {
		out = append(out, capacity.MachineCost{Owner: owner, Machine: b.name + " tells of " + name, UID: types.UID(name)})
	}
	return out, nil
}

func (b *backEnd) Events(context.Context, []types.UID) ([]refusal.Event, error) {
	var out []refusal.Event
	for _, what := range b.said {
		out = append(out, refusal.Event{Message: what})
	}
	return out, b.broken
}

func (b *backEnd) hold(names ...string) *backEnd {
	b.held, b.cached = names, names
	return b
}

func machineNames(machines []capacity.Machine) []string {
	var out []string
	for _, machine := range machines {
		name := machine.Name
		if machine.Retired {
			name = "retired " + name
		}
		out = append(out, name)
	}
	return out
}

// TestObserve: a Workspace stays with a previous back end while that back end has any of its machines.
func TestObserve(t *testing.T) {
	tests := []struct {
		reason        string
		set, old, odd *backEnd
		want          []string
		names         string
		fails         bool
	}{
		{"nobody holds anything", &backEnd{name: "set"}, &backEnd{name: "old"}, &backEnd{name: "odd"}, nil, "set-1", false},
		{"the one that is set does", (&backEnd{name: "set"}).hold("a"), &backEnd{name: "old"}, &backEnd{name: "odd"}, []string{"a"}, "set-1", false},
		{"a retired one does", &backEnd{name: "set"}, &backEnd{name: "old"}, (&backEnd{name: "odd"}).hold("b"), []string{"retired b"}, "odd-1", false},
		{"two do, and the first goes first", &backEnd{name: "set"}, (&backEnd{name: "old"}).hold("a"), (&backEnd{name: "odd"}).hold("b"), []string{"retired a"}, "old-1", false},
		{"the cache does not show it yet", &backEnd{name: "set"}, &backEnd{name: "old", held: []string{"a"}}, &backEnd{name: "odd"}, nil, "old-1", true},
		{"nobody may look", &backEnd{name: "set"}, &backEnd{name: "old", broken: errors.New("forbidden")}, &backEnd{name: "odd"}, nil, "set-1", true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			all := handover.New(testclock.NewFakePassiveClock(time.Now()), test.set, test.old, test.odd)
			machines, err := all.Observe(t.Context(), owner, nil, "")
			if (err != nil) != test.fails {
				t.Errorf("error %v, want one: %t", err, test.fails)
			}
			if diff := cmp.Diff(test.want, machineNames(machines)); diff != "" {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
			if names, _ := all.Names(owner, 1, 1); !slices.Equal(names, []string{test.names}) {
				t.Errorf("its machines are called %v, want %s", names, test.names)
			}
		})
	}
}

// TestLooksOnce: only a failed read is repeated. Waiting costs nothing.
func TestLooksOnce(t *testing.T) {
	old, odd := (&backEnd{name: "old"}).hold("a"), &backEnd{name: "odd", broken: errors.New("timed out")}
	clock := testclock.NewFakePassiveClock(time.Now())
	all := handover.New(clock, &backEnd{name: "set"}, old, odd)
	look := func(fails bool, want ...string) {
		t.Helper()
		machines, err := all.Observe(t.Context(), owner, nil, "")
		if got := machineNames(machines); (err != nil) != fails || !slices.Equal(got, want) {
			t.Errorf("machines %v, error %v; want %v, an error: %t", got, err, want, fails)
		}
	}
	look(true)
	odd.broken = nil
	look(true) // it failed just now
	clock.SetTime(clock.Now().Add(time.Minute))
	for range 3 {
		look(false, "retired a")
	}
	if old.looks != 2 || odd.looks != 2 {
		t.Errorf("looked %d and %d times, want 2: for what failed and for what did not", old.looks, odd.looks)
	}
}

// TestHandedOver: once a previous back end has no machines, the current one takes over for good.
func TestHandedOver(t *testing.T) {
	set, old := &backEnd{name: "set"}, (&backEnd{name: "old"}).hold("a")
	all := handover.New(testclock.NewFakePassiveClock(time.Now()), set, old)
	if left, err := all.Release(t.Context(), owner); err != nil || !slices.Equal(left, []string{"a"}) || set.released > 0 {
		t.Fatalf("left %v, error %v, of the one that is set released %d times; want the retired one's first", left, err, set.released)
	}
	if left, err := all.Release(t.Context(), owner); err != nil || len(left) > 0 || set.released != 1 {
		t.Fatalf("left %v, error %v, of the one that is set released %d times; want it to follow", left, err, set.released)
	}
	set.hold("b")
	old.hold("late")
	if machines, err := all.Observe(t.Context(), owner, nil, ""); err != nil || !slices.Equal(machineNames(machines), []string{"b"}) {
		t.Errorf("machines %v, error %v; want those of the one that is set", machineNames(machines), err)
	}
}

// TestHandedOverTwice: the sweeper and a pass may both find that a previous back end is empty. The next one still has a
// machine that costs money.
func TestHandedOverTwice(t *testing.T) {
	set, old, odd := &backEnd{name: "set"}, (&backEnd{name: "old"}).hold("a"), (&backEnd{name: "odd"}).hold("b")
	all := handover.New(testclock.NewFakePassiveClock(time.Now()), set, old, odd)
	if _, err := all.Observe(t.Context(), owner, nil, ""); err != nil {
		t.Fatal(err)
	}
	old.hold()
	old.meanwhile = func() {
		if _, err := all.Observe(t.Context(), owner, nil, ""); err != nil {
			t.Error(err)
		}
	}
	if left, err := all.Release(t.Context(), owner); err != nil || !slices.Equal(left, []string{"b"}) || set.released > 0 {
		t.Errorf("left %v, error %v, of the one that is set released %d times; want what the second retired one holds", left, err, set.released)
	}
}

// TestMachineCosts: every machine counts, and none twice if two back ends report it.
func TestMachineCosts(t *testing.T) {
	all := handover.New(testclock.NewFakePassiveClock(time.Now()), (&backEnd{name: "set"}).hold("a", "c"), (&backEnd{name: "old"}).hold("a"), (&backEnd{name: "odd"}).hold("a", "b"))
	costs, err := all.MachineCosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, bill := range costs {
		got = append(got, bill.Machine)
	}
	if diff := cmp.Diff([]string{"old tells of a", "odd tells of b", "set tells of c"}, got); diff != "" {
		t.Errorf("costs (-want +got):\n%s", diff)
	}
}

// TestOwners finds deleted owners with machines of a previous back end.
func TestOwners(t *testing.T) {
	all := handover.New(testclock.NewFakePassiveClock(time.Now()), &backEnd{name: "set"}, (&backEnd{name: "old"}).hold("a"))
	for name, want := range map[string][]capacity.Owner{"chat": {owner}, "other": nil} {
		got, err := all.Owners(t.Context(), "team-a", name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v, owners (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestEvents: an event counts once for any number of back ends, even if only a previous back end reads it.
func TestEvents(t *testing.T) {
	tests := []struct {
		reason   string
		set, old []string
		want     []refusal.Event
	}{
		{"nothing was", nil, nil, nil},
		{"both read the same", []string{"refused"}, []string{"refused"}, []refusal.Event{{Message: "refused"}}},
		{"the one that is set reads nothing", nil, []string{"refused"}, []refusal.Event{{Message: "refused"}}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			all := handover.New(testclock.NewFakePassiveClock(time.Now()), &backEnd{said: test.set}, (&backEnd{said: test.old}).hold("a"))
			if _, err := all.Observe(t.Context(), owner, nil, ""); err != nil {
				t.Fatal(err)
			}
			got, err := all.Events(t.Context(), []types.UID{"1"})
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("error %v, (-want +got):\n%s", err, diff)
			}
		})
	}
}
