// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ladder_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	stands := ladder.Machine{Stands: true, Existed: true}
	leaves := ladder.Machine{Existed: true, Verdict: refusal.Verdict{Cause: refusal.NoCapacity, Final: true}}
	waits := ladder.Machine{Stands: true, Existed: true, Verdict: refusal.Verdict{LookAgain: start}}
	open := func(machines ...ladder.Machine) *ladder.Attempt {
		return &ladder.Attempt{Open: true, Wanted: true, Machines: machines}
	}
	lost := ladder.Machine{Stands: true, Existed: true, Verdict: refusal.Verdict{Cause: refusal.Lost, Final: true}}
	arrives := ladder.Machine{Stands: true, Existed: true, Arriving: true}
	mendable := lost
	mendable.AskAgain = true
	ready := func(isApart bool, machines ...ladder.Machine) *ladder.Attempt {
		return &ladder.Attempt{Open: true, Wanted: true, Keeps: true, Apart: isApart, Machines: machines}
	}
	former := func(machines ...ladder.Machine) *ladder.Attempt {
		return &ladder.Attempt{Open: true, Wanted: true, Former: true, Machines: machines}
	}
	closed := func(cause refusal.Cause) *ladder.Attempt { return &ladder.Attempt{Cause: cause} }
	unmended := &ladder.Attempt{Cause: refusal.Misconfigured, Unchanged: true}
	failed := refusal.Verdict{Cause: refusal.CannotServe, Final: true, Message: "it does not run"}
	tests := []struct {
		reason string
		state  ladder.State
		want   ladder.Step
	}{
		{"nothing is known and nothing held", ladder.State{}, ladder.Step{Do: ladder.Next}},
		{"machines of which nothing is known", ladder.State{Strays: 1, Unknown: true}, ladder.Step{Do: ladder.Adopt}},
		{"machines of another kind", ladder.State{Strays: 1}, ladder.Step{Do: ladder.Release}},
		{"machines on their way out", ladder.State{Leaving: 1}, ladder.Step{Do: ladder.Await}},
		{"an attempt was written down and no more", ladder.State{Last: open(ladder.Machine{})}, ladder.Step{Do: ladder.Ask}},
		{
			"an attempt was written down, and former machines are still on their way out",
			ladder.State{Last: open(ladder.Machine{}), Leaving: 1},
			ladder.Step{Do: ladder.Await},
		},
		{
			"an attempt was written down, and former machines stand",
			ladder.State{Last: open(ladder.Machine{}), Strays: 1},
			ladder.Step{Do: ladder.Release},
		},
		{"one of two was asked for", ladder.State{Last: open(stands, ladder.Machine{})}, ladder.Step{Do: ladder.Ask}},
		{
			"a former back end had one of two asked for",
			ladder.State{Last: former(stands, ladder.Machine{})},
			ladder.Step{Do: ladder.End, Verdict: refusal.Verdict{Message: "the capacity back end changed before all machines were acquired"}},
		},
		{"a former back end lost one of two", ladder.State{Last: former(stands, leaves)}, ladder.Step{Do: ladder.End, Verdict: leaves.Verdict}},
		{"a former back end has all", ladder.State{Last: former(stands, stands)}, ladder.Step{Do: ladder.Keep}},
		{
			"all stand",
			ladder.State{Last: open(stands, waits)},
			ladder.Step{Do: ladder.Keep, Verdict: refusal.Verdict{LookAgain: start}},
		},
		{
			"one of two is refused: the attempt has ended",
			ladder.State{Last: open(stands, leaves), Leaving: 1},
			ladder.Step{Do: ladder.End, Verdict: leaves.Verdict},
		},
		{
			"one of two is refused before the other one was asked for",
			ladder.State{Last: open(leaves, ladder.Machine{})},
			ladder.Step{Do: ladder.End, Verdict: leaves.Verdict},
		},
		{
			"an older status was restored than that of the machines that stand",
			ladder.State{Last: open(ladder.Machine{}), Strays: 1, Unknown: true},
			ladder.Step{Do: ladder.End, Verdict: refusal.Verdict{Message: "machines of another attempt are held"}},
		},
		{
			"machines that nobody knows stand beside those of the attempt",
			ladder.State{Last: open(stands), Strays: 1, Unknown: true},
			ladder.Step{Do: ladder.Release},
		},
		{
			"one of two that serve by themselves is lost",
			ladder.State{Last: ready(true, stands, lost)},
			ladder.Step{Do: ladder.Replace},
		},
		{
			"one of a group is lost, and another can be had at once",
			ladder.State{Last: ready(false, stands, mendable)},
			ladder.Step{Do: ladder.Replace},
		},
		{
			"one of a group is lost, and no other is asked for before a cooldown has passed",
			ladder.State{Last: ready(false, stands, lost)},
			ladder.Step{Do: ladder.End, Verdict: lost.Verdict},
		},
		{
			"one is refused that was asked for in place of a lost one, and so may be the other: nothing is bought for ever",
			ladder.State{Last: ready(true, arrives, lost)},
			ladder.Step{Do: ladder.End, Verdict: lost.Verdict, Recheck: true},
		},
		{
			"a group whose lost machine has a cooldown ends whether or not the other one is usable",
			ladder.State{Last: ready(false, arrives, lost)},
			ladder.Step{Do: ladder.End, Verdict: lost.Verdict},
		},
		{
			"the machines of an attempt that never had all of them go together",
			ladder.State{Last: open(arrives, lost)},
			ladder.Step{Do: ladder.End, Verdict: lost.Verdict},
		},
		{
			"all are lost",
			ladder.State{Last: ready(true, mendable, mendable)},
			ladder.Step{Do: ladder.End, Verdict: lost.Verdict},
		},
		{
			"the lost one stands still: it alone is let go",
			ladder.State{Last: ready(true, stands, ladder.Machine{}), Strays: 1},
			ladder.Step{Do: ladder.Release},
		},
		{
			"the lost one is on its way out",
			ladder.State{Last: ready(true, stands, ladder.Machine{}), Leaving: 1},
			ladder.Step{Do: ladder.Await},
		},
		{"the lost one is gone", ladder.State{Last: ready(true, stands, ladder.Machine{})}, ladder.Step{Do: ladder.Ask}},
		{"another plan", ladder.State{Last: &ladder.Attempt{Open: true}, Strays: 1}, ladder.Step{Do: ladder.End}},
		{"the rest of a refused attempt stands", ladder.State{Last: closed(refusal.Quota), Strays: 1}, ladder.Step{Do: ladder.Release}},
		{"the rest of a refused attempt goes", ladder.State{Last: closed(refusal.Quota), Leaving: 1}, ladder.Step{Do: ladder.Await}},
		{"a refused attempt is gone", ladder.State{Last: closed(refusal.Quota)}, ladder.Step{Do: ladder.Next}},
		{"machines were let go", ladder.State{Last: closed(refusal.None)}, ladder.Step{Do: ladder.Next}},
		{"nobody has mended anything", ladder.State{Last: unmended}, ladder.Step{Do: ladder.Stop}},
		{"nor are machines kept meanwhile", ladder.State{Last: unmended, Strays: 1}, ladder.Step{Do: ladder.Release}},
		{"somebody has", ladder.State{Last: closed(refusal.Misconfigured)}, ladder.Step{Do: ladder.Next}},
		{
			"what runs on the machines has failed for too long",
			ladder.State{Last: &ladder.Attempt{Open: true, Wanted: true, Machines: []ladder.Machine{stands}, Failed: failed}},
			ladder.Step{Do: ladder.End, Verdict: failed},
		},
		{
			"what runs on the machines has failed for too long, and one is lost",
			ladder.State{Last: &ladder.Attempt{Open: true, Wanted: true, Machines: []ladder.Machine{lost}, Failed: failed}},
			ladder.Step{Do: ladder.End, Verdict: lost.Verdict},
		},
		{
			"nobody has acted since machines were released for what ran on them",
			ladder.State{Last: &ladder.Attempt{Cause: refusal.CannotServe, Unchanged: true}},
			ladder.Step{Do: ladder.Stop},
		},
		{"somebody has acted since", ladder.State{Last: closed(refusal.CannotServe)}, ladder.Step{Do: ladder.Next}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ladder.Decide(test.state)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func offer(name string) refusal.Offering {
	return refusal.Offering{InstanceType: name, Family: "family-" + name, CapacityType: v1beta1.CapacityOnDemand}
}

// refusedFor is an attempt whose machine type is left alone for a while.
func refusedFor(name string, cooldown time.Duration) refusal.Attempt {
	return refusal.Attempt{
		Offering: offer(name), Started: start.Add(-time.Minute), Ended: start, Cause: refusal.Quota, Cooldown: cooldown,
		Scope: refusal.Scope{Breadth: refusal.SKU, Name: name, Zone: refusal.Any, CapacityType: v1beta1.CapacityOnDemand},
	}
}

func TestExclusionsAndReopens(t *testing.T) {
	memory := &ladder.Memory{}
	memory.Learn(start, refusedFor("a", 10*time.Minute), refusedFor("b", time.Hour), refusedFor("c", 2*time.Hour))
	got := memory.Exclusions(start, refusal.Asker{}, slices.Values([]refusal.Offering{offer("a"), offer("b"), offer("c"), offer("d")}))
	want := []ladder.Exclusion{
		{Offering: offer("a"), Until: start.Add(10 * time.Minute), Cause: refusal.Quota},
		{Offering: offer("b"), Until: start.Add(time.Hour), Cause: refusal.Quota},
		{Offering: offer("c"), Until: start.Add(2 * time.Hour), Cause: refusal.Quota},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	needs := func(name string) func([]ladder.Exclusion) bool {
		return func(left []ladder.Exclusion) bool {
			for _, e := range left {
				if e.Offering.InstanceType == name {
					return false
				}
			}
			return name != "none"
		}
	}
	for name, after := range map[string]time.Duration{"a": 10 * time.Minute, "b": time.Hour, "c": 2 * time.Hour} {
		if at := ladder.Reopens(got, needs(name)); !at.Equal(start.Add(after)) {
			t.Errorf("what needs %s may be asked for at %s, want %s", name, at, start.Add(after))
		}
	}
	if at := ladder.Reopens(got, needs("none")); !at.IsZero() {
		t.Errorf("what nothing serves may be asked for at %s, want never", at)
	}
}

// One attempt that a wrong clock dated must not cost the memory of all others.
func TestMemoryFromTheFuture(t *testing.T) {
	far := refusedFor("b", time.Hour)
	far.Started, far.Ended = start.AddDate(5, 0, 0), start.AddDate(5, 0, 0)
	memory := &ladder.Memory{}
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
	memory := &ladder.Memory{}
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

// After a cooldown one asks, and the others wait for what becomes of it.
func TestMemoryHasOneAskFirst(t *testing.T) {
	after := start.Add(time.Hour)
	asks := func(workspace types.UID, name string, began time.Time) refusal.Attempt {
		return refusal.Attempt{Asker: refusal.Asker{Workspace: workspace}, Offering: offer(name), Started: began}
	}
	tests := []struct {
		reason string
		then   func(*ladder.Memory)
		at     time.Time
		name   string
		may    bool
	}{
		{"the first asks", func(*ladder.Memory) {}, after, "a", true},
		{"another one is on its way", func(m *ladder.Memory) { m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a")) }, after, "a", false},
		{"a restart learns that another one is on its way", func(m *ladder.Memory) { m.Learn(start, asks("x", "a", after)) }, after, "a", false},
		{"its own former try", func(m *ladder.Memory) { m.Ask(after, refusal.Asker{Workspace: "me"}, offer("a")) }, after, "a", true},
		{"another offer", func(m *ladder.Memory) { m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a")) }, after, "b", true},
		{"it was asked for before the cooldown had passed", func(m *ladder.Memory) { m.Learn(start, asks("x", "a", start)) }, after, "a", true},
		{"nothing was heard for too long", func(m *ladder.Memory) { m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a")) }, after.Add(16 * time.Minute), "a", true},
		{"the other one is gone", func(m *ladder.Memory) { m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a")); m.Forget("x") }, after, "a", true},
		{"the other one has got it", func(m *ladder.Memory) {
			m.Ask(after, refusal.Asker{Workspace: "x"}, offer("a"))
			got := asks("x", "a", after)
			got.Ended = after.Add(time.Minute)
			m.Learn(start, got)
		}, after.Add(2 * time.Minute), "a", true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			memory := &ladder.Memory{}
			memory.Learn(start, refusedFor("a", time.Hour))
			test.then(memory)
			excluded := memory.Exclusions(test.at, refusal.Asker{Workspace: "me"}, slices.Values([]refusal.Offering{offer(test.name)}))
			if may := memory.Ask(test.at, refusal.Asker{Workspace: "me"}, offer(test.name)); may != test.may || (len(excluded) == 0) != test.may {
				t.Errorf("it may ask: %t, left alone: %v; want %t", may, excluded, test.may)
			}
		})
	}
}
