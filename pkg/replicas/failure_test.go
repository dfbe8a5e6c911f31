// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFails(t *testing.T) {
	began := time.Unix(10_000, 0)
	after := began.Add
	starting := func(name string, since time.Time, letters string) Replica {
		out := at(letters)[0]
		out.Name, out.Starting = name, since
		return out
	}
	failing := func(letters string) Replica {
		out := at(letters)[0]
		out.IsFailing = true
		return out
	}
	tests := []struct {
		reason string
		have   []Replica
		now    time.Time
		want   Failure
	}{
		{"no replica has the template yet", at("r", "r"), after(time.Hour), Failure{}},
		{"all are ready", at("cr", "cr"), after(time.Hour), Failure{}},
		{"one starts, and has time", []Replica{starting("a", after(time.Minute), "c")}, after(10 * time.Minute), Failure{Next: after(31 * time.Minute)}},
		{"one is late to the second", []Replica{starting("a", after(time.Minute), "c")}, after(31 * time.Minute), Failure{Replica: "a", IsLate: true}},
		{
			"a replica that did not answer before the rollout gets the whole deadline",
			[]Replica{starting("a", after(-time.Hour), "c")},
			after(29 * time.Minute),
			Failure{Next: after(30 * time.Minute)},
		},
		{"a replica with the former template may take its time", []Replica{starting("a", after(0), "")}, after(time.Hour), Failure{}},
		{"a replica without machines may, too", []Replica{starting("a", after(0), "cm")}, after(time.Hour), Failure{}},
		{"a failure may be that of former pods", []Replica{failing("c")}, after(time.Minute), Failure{Next: after(2 * time.Minute)}},
		{"later it ends the rollout", []Replica{failing("c")}, after(2 * time.Minute), Failure{Replica: "a"}},
		{"unless the replica lacks a machine", []Replica{failing("cm")}, after(time.Hour), Failure{}},
		{"or is being deleted", []Replica{failing("cl")}, after(time.Hour), Failure{}},
		{"or has the former template", []Replica{failing("")}, after(time.Hour), Failure{}},
		{
			"the earliest deadline is the next look",
			[]Replica{starting("a", after(2*time.Minute), "c"), starting("b", after(time.Minute), "c")},
			after(3 * time.Minute),
			Failure{Next: after(31 * time.Minute)},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Fails(test.have, began, test.now, Patience{2 * time.Minute, 30 * time.Minute})); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}
