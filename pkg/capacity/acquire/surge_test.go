// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// TestDecideBesideHeld covers the steps while the machines of one attempt serve and another attempt acquires its own.
func TestDecideBesideHeld(t *testing.T) {
	stands := acquire.Machine{Stands: true, Existed: true}
	open := func(machines ...acquire.Machine) *acquire.Attempt {
		return &acquire.Attempt{Open: true, Wanted: true, Machines: machines}
	}
	lost := refusal.Verdict{Cause: refusal.Lost, Final: true}
	serves, moved, empty := &acquire.Serving{}, &acquire.Serving{Moved: true}, &acquire.Serving{Moved: true, Empty: true}
	tests := []struct {
		reason string
		state  acquire.State
		want   acquire.Step
	}{
		{"another plan is wanted", acquire.State{Serving: serves}, acquire.Step{Do: acquire.Next}},
		{"machines are asked for beside it", acquire.State{Serving: serves, Last: open(acquire.Machine{})}, acquire.Step{Do: acquire.Ask}},
		{"they are there", acquire.State{Serving: serves, Last: open(stands)}, acquire.Step{Do: acquire.Keep}},
		{
			"another plan yet is wanted: what was begun is ended first",
			acquire.State{Serving: serves, Last: &acquire.Attempt{Open: true}},
			acquire.Step{Do: acquire.End},
		},
		{
			"its machines are let go before others are asked for",
			acquire.State{Serving: serves, Last: &acquire.Attempt{}, Strays: 1},
			acquire.Step{Do: acquire.Release},
		},
		{
			"and gone, so that never more than one is held beside what serves",
			acquire.State{Serving: serves, Last: &acquire.Attempt{}, Leaving: 1},
			acquire.Step{Do: acquire.Await},
		},
		{
			"it is refused, and somebody has to mend something",
			acquire.State{Serving: serves, Last: &acquire.Attempt{Cause: refusal.Misconfigured, Unchanged: true}},
			acquire.Step{Do: acquire.Stop},
		},
		{
			"what serves is lost, whatever else is to be done",
			acquire.State{Serving: &acquire.Serving{Verdict: lost}, Last: open(acquire.Machine{}), Strays: 1},
			acquire.Step{Do: acquire.LetGo, Verdict: lost},
		},
		{"the pods have been told to move", acquire.State{Serving: moved, Last: open(stands)}, acquire.Step{Do: acquire.Keep}},
		{"the pods have moved", acquire.State{Serving: empty, Last: open(stands)}, acquire.Step{Do: acquire.LetGo}},
		{
			"another plan is wanted while the pods move: what serves now is the latest, and one is held at most",
			acquire.State{Serving: moved, Last: &acquire.Attempt{Open: true}},
			acquire.Step{Do: acquire.Await},
		},
		{
			"and pods that do not get there stop nobody for ever",
			acquire.State{Serving: &acquire.Serving{Moved: true, Overdue: true}, Last: &acquire.Attempt{Open: true}},
			acquire.Step{Do: acquire.LetGo},
		},
		{
			"pods that do not get there stay where they are as long as nothing else is wanted",
			acquire.State{Serving: &acquire.Serving{Moved: true, Overdue: true}, Last: open(stands)},
			acquire.Step{Do: acquire.Keep},
		},
		{
			"the machines that the pods move to are lost",
			acquire.State{Serving: moved, Last: &acquire.Attempt{Cause: refusal.Lost}},
			acquire.Step{Do: acquire.Await},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.state.Next()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
