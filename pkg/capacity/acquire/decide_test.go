// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

func TestDecide(t *testing.T) {
	stands := acquire.Machine{Stands: true, Existed: true}
	leaves := acquire.Machine{Existed: true, Verdict: refusal.Verdict{Cause: refusal.NoCapacity, Final: true}}
	waits := acquire.Machine{Stands: true, Existed: true, Verdict: refusal.Verdict{LookAgain: start}}
	open := func(machines ...acquire.Machine) *acquire.Attempt {
		return &acquire.Attempt{Open: true, Wanted: true, Machines: machines}
	}
	lost := acquire.Machine{Stands: true, Existed: true, Verdict: refusal.Verdict{Cause: refusal.Lost, Final: true}}
	arrives := acquire.Machine{Stands: true, Existed: true, Arriving: true}
	mendable := lost
	mendable.AskAgain = true
	ready := func(isApart bool, machines ...acquire.Machine) *acquire.Attempt {
		return &acquire.Attempt{Open: true, Wanted: true, Keeps: true, Apart: isApart, Machines: machines}
	}
	former := func(machines ...acquire.Machine) *acquire.Attempt {
		return &acquire.Attempt{Open: true, Wanted: true, Retired: true, Machines: machines}
	}
	closed := func(cause refusal.Cause) *acquire.Attempt { return &acquire.Attempt{Cause: cause} }
	unmended := &acquire.Attempt{Cause: refusal.Misconfigured, Unchanged: true}
	failed := refusal.Verdict{Cause: refusal.CannotServe, Final: true, Message: "it does not run"}
	tests := []struct {
		reason string
		state  acquire.State
		want   acquire.Step
	}{
		{"nothing is known and nothing held", acquire.State{}, acquire.Step{Do: acquire.Next}},
		{"machines of which nothing is known", acquire.State{Strays: 1, Unknown: true}, acquire.Step{Do: acquire.Adopt}},
		{"machines of another kind", acquire.State{Strays: 1}, acquire.Step{Do: acquire.Release}},
		{"machines on their way out", acquire.State{Leaving: 1}, acquire.Step{Do: acquire.Await}},
		{"an attempt was written down and no more", acquire.State{Last: open(acquire.Machine{})}, acquire.Step{Do: acquire.Ask}},
		{
			"an attempt was written down, and former machines are still on their way out",
			acquire.State{Last: open(acquire.Machine{}), Leaving: 1},
			acquire.Step{Do: acquire.Await},
		},
		{
			"an attempt was written down, and former machines stand",
			acquire.State{Last: open(acquire.Machine{}), Strays: 1},
			acquire.Step{Do: acquire.Ask},
		},
		{"one of two was asked for", acquire.State{Last: open(stands, acquire.Machine{})}, acquire.Step{Do: acquire.Ask}},
		{
			"a retired back end had one of two asked for",
			acquire.State{Last: former(stands, acquire.Machine{})},
			acquire.Step{Do: acquire.End, Verdict: refusal.Verdict{Message: "the capacity back end changed before all machines were acquired"}},
		},
		{"a retired back end lost one of two", acquire.State{Last: former(stands, leaves)}, acquire.Step{Do: acquire.End, Verdict: leaves.Verdict}},
		{"a retired back end has all", acquire.State{Last: former(stands, stands)}, acquire.Step{Do: acquire.Keep}},
		{
			"all stand",
			acquire.State{Last: open(stands, waits)},
			acquire.Step{Do: acquire.Keep, Verdict: refusal.Verdict{LookAgain: start}},
		},
		{
			"one of two is refused: the attempt has ended",
			acquire.State{Last: open(stands, leaves), Leaving: 1},
			acquire.Step{Do: acquire.End, Verdict: leaves.Verdict},
		},
		{
			"one of two is refused before the other one was asked for",
			acquire.State{Last: open(leaves, acquire.Machine{})},
			acquire.Step{Do: acquire.End, Verdict: leaves.Verdict},
		},
		{
			"an older status was restored than that of the machines that stand",
			acquire.State{Last: open(acquire.Machine{}), Strays: 1, Unknown: true},
			acquire.Step{Do: acquire.End, Verdict: refusal.Verdict{Message: "the machines belong to another attempt"}},
		},
		{
			"machines that nobody knows stand beside those of the attempt",
			acquire.State{Last: open(stands), Strays: 1, Unknown: true},
			acquire.Step{Do: acquire.Ask},
		},
		{
			"one of two that serve by themselves is lost",
			acquire.State{Last: ready(true, stands, lost)},
			acquire.Step{Do: acquire.Replace, Lost: []acquire.Machine{lost}},
		},
		{
			"one of a group is lost, and another can be had at once",
			acquire.State{Last: ready(false, stands, mendable)},
			acquire.Step{Do: acquire.Replace, Lost: []acquire.Machine{mendable}},
		},
		{
			"one of a group is lost, and no other is asked for before a cooldown has passed",
			acquire.State{Last: ready(false, stands, lost)},
			acquire.Step{Do: acquire.End, Verdict: lost.Verdict},
		},
		{
			"one is refused that was asked for in place of a lost one, and so may be the other: nothing is bought for ever",
			acquire.State{Last: ready(true, arrives, lost)},
			acquire.Step{Do: acquire.End, Verdict: lost.Verdict, Recheck: true},
		},
		{
			"a group whose lost machine has a cooldown ends whether or not the other one is usable",
			acquire.State{Last: ready(false, arrives, lost)},
			acquire.Step{Do: acquire.End, Verdict: lost.Verdict},
		},
		{
			"the machines of an attempt that never had all of them go together",
			acquire.State{Last: open(arrives, lost)},
			acquire.Step{Do: acquire.End, Verdict: lost.Verdict},
		},
		{
			"all are lost",
			acquire.State{Last: ready(true, mendable, mendable)},
			acquire.Step{Do: acquire.End, Verdict: lost.Verdict},
		},
		{
			"the lost one stands still: it alone is let go",
			acquire.State{Last: ready(true, stands, acquire.Machine{}), Strays: 1},
			acquire.Step{Do: acquire.Ask},
		},
		{
			"the lost one is on its way out",
			acquire.State{Last: ready(true, stands, acquire.Machine{}), Leaving: 1},
			acquire.Step{Do: acquire.Await},
		},
		{"the lost one is gone", acquire.State{Last: ready(true, stands, acquire.Machine{})}, acquire.Step{Do: acquire.Ask}},
		{"another plan", acquire.State{Last: &acquire.Attempt{Open: true}, Strays: 1}, acquire.Step{Do: acquire.End}},
		{"the rest of a refused attempt stands", acquire.State{Last: closed(refusal.Quota), Strays: 1}, acquire.Step{Do: acquire.Release}},
		{"the rest of a refused attempt goes", acquire.State{Last: closed(refusal.Quota), Leaving: 1}, acquire.Step{Do: acquire.Await}},
		{"a refused attempt is gone", acquire.State{Last: closed(refusal.Quota)}, acquire.Step{Do: acquire.Next}},
		{"machines were let go", acquire.State{Last: closed(refusal.None)}, acquire.Step{Do: acquire.Next}},
		{"nobody has mended anything", acquire.State{Last: unmended}, acquire.Step{Do: acquire.Stop}},
		{"nor are machines kept meanwhile", acquire.State{Last: unmended, Strays: 1}, acquire.Step{Do: acquire.Release}},
		{"somebody has", acquire.State{Last: closed(refusal.Misconfigured)}, acquire.Step{Do: acquire.Next}},
		{
			"the node class has been mended since",
			acquire.State{Last: &acquire.Attempt{Cause: refusal.Misconfigured, Unchanged: true, Mended: true}},
			acquire.Step{Do: acquire.Next},
		},
		{
			"an attempt is written before its machines are requested",
			acquire.State{Last: open(acquire.Machine{}), Unwritten: true},
			acquire.Step{Do: acquire.Record},
		},
		{
			"the end of an attempt is written before its machines are released",
			acquire.State{Last: closed(refusal.Quota), Strays: 1, Unwritten: true},
			acquire.Step{Do: acquire.Record},
		},
		{
			"the end of an attempt is written before the next one begins",
			acquire.State{Last: closed(refusal.Quota), Unwritten: true},
			acquire.Step{Do: acquire.Record},
		},
		{
			"progress of machines is written with the report",
			acquire.State{Last: open(stands), Unwritten: true},
			acquire.Step{Do: acquire.Keep},
		},
		{
			"what runs on the machines has failed for too long",
			acquire.State{Last: &acquire.Attempt{Open: true, Wanted: true, Machines: []acquire.Machine{stands}, Failed: failed}},
			acquire.Step{Do: acquire.End, Verdict: failed},
		},
		{
			"what runs on the machines has failed for too long, and one is lost",
			acquire.State{Last: &acquire.Attempt{Open: true, Wanted: true, Machines: []acquire.Machine{lost}, Failed: failed}},
			acquire.Step{Do: acquire.End, Verdict: lost.Verdict},
		},
		{
			"nobody has acted since machines were released for what ran on them",
			acquire.State{Last: &acquire.Attempt{Cause: refusal.CannotServe, Unchanged: true}},
			acquire.Step{Do: acquire.Stop},
		},
		{"somebody has acted since", acquire.State{Last: closed(refusal.CannotServe)}, acquire.Step{Do: acquire.Next}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.state.Next()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
