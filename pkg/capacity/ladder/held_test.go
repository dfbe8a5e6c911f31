// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ladder_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

func TestIsHeld(t *testing.T) {
	tests := []struct {
		reason string
		open   ladder.Open
		want   bool
	}{
		{"it does for the plan", ladder.Open{Ready: true, Wanted: true}, false},
		{"another plan is wanted", ladder.Open{Ready: true}, true},
		{"another plan is wanted, and it never got its machines", ladder.Open{}, false},
		{"it is asked for", ladder.Open{Wanted: true}, false},
		{"the pods are on their way to others", ladder.Open{Ready: true, Moved: true}, true},
		{"the pods are on their way to others, and it would do again", ladder.Open{Ready: true, Wanted: true, Moved: true}, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := test.open.IsHeld(); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// What happens while the machines of one attempt serve and those of another are got.
func TestDecideBesideHeld(t *testing.T) {
	stands := ladder.Machine{Stands: true, Existed: true}
	open := func(machines ...ladder.Machine) *ladder.Attempt {
		return &ladder.Attempt{Open: true, Wanted: true, Machines: machines}
	}
	lost := refusal.Verdict{Cause: refusal.Lost, Final: true}
	serves, moved, empty := &ladder.Held{}, &ladder.Held{Moved: true}, &ladder.Held{Moved: true, Empty: true}
	tests := []struct {
		reason string
		state  ladder.State
		want   ladder.Step
	}{
		{"another plan is wanted", ladder.State{Held: serves}, ladder.Step{Do: ladder.Next}},
		{"machines are asked for beside it", ladder.State{Held: serves, Last: open(ladder.Machine{})}, ladder.Step{Do: ladder.Ask}},
		{"they are there", ladder.State{Held: serves, Last: open(stands)}, ladder.Step{Do: ladder.Keep}},
		{
			"another plan yet is wanted: what was begun is ended first",
			ladder.State{Held: serves, Last: &ladder.Attempt{Open: true}},
			ladder.Step{Do: ladder.End},
		},
		{
			"its machines are let go before others are asked for",
			ladder.State{Held: serves, Last: &ladder.Attempt{}, Strays: 1},
			ladder.Step{Do: ladder.Release},
		},
		{
			"and gone, so that never more than one is held beside what serves",
			ladder.State{Held: serves, Last: &ladder.Attempt{}, Leaving: 1},
			ladder.Step{Do: ladder.Await},
		},
		{
			"it is refused, and somebody has to mend something",
			ladder.State{Held: serves, Last: &ladder.Attempt{Cause: refusal.Misconfigured, Unchanged: true}},
			ladder.Step{Do: ladder.Stop},
		},
		{
			"what serves is lost, whatever else is to be done",
			ladder.State{Held: &ladder.Held{Verdict: lost}, Last: open(ladder.Machine{}), Strays: 1},
			ladder.Step{Do: ladder.LetGo, Verdict: lost},
		},
		{"the pods have been told to move", ladder.State{Held: moved, Last: open(stands)}, ladder.Step{Do: ladder.Keep}},
		{"the pods have moved", ladder.State{Held: empty, Last: open(stands)}, ladder.Step{Do: ladder.LetGo}},
		{
			"another plan is wanted while the pods move: what serves now is the latest, and one is held at most",
			ladder.State{Held: moved, Last: &ladder.Attempt{Open: true}},
			ladder.Step{Do: ladder.Await},
		},
		{
			"and pods that do not get there stop nobody for ever",
			ladder.State{Held: &ladder.Held{Moved: true, Overdue: true}, Last: &ladder.Attempt{Open: true}},
			ladder.Step{Do: ladder.LetGo},
		},
		{
			"pods that do not get there stay where they are as long as nothing else is wanted",
			ladder.State{Held: &ladder.Held{Moved: true, Overdue: true}, Last: open(stands)},
			ladder.Step{Do: ladder.Keep},
		},
		{
			"the machines that the pods move to are lost",
			ladder.State{Held: moved, Last: &ladder.Attempt{Cause: refusal.Lost}},
			ladder.Step{Do: ladder.Await},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ladder.Decide(test.state)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
