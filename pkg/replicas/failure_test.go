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
	after, never := began.Add, time.Time{}
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
		// changed is when the number of available replicas last changed.
		changed time.Time
	}{
		{"no replica has the template yet", at("r", "r"), after(time.Hour), Failure{}, never},
		{"all are ready", at("cr", "cr"), after(time.Hour), Failure{}, never},
		{"one starts, and has time", []Replica{starting("a", after(time.Minute), "c")}, after(10 * time.Minute), Failure{Next: after(31 * time.Minute)}, never},
		{"one is late to the second", []Replica{starting("a", after(time.Minute), "c")}, after(31 * time.Minute), Failure{Replica: "a", IsLate: true}, never},
		{
			"a replica that did not answer before the rollout gets the whole deadline",
			[]Replica{starting("a", after(-time.Hour), "c")},
			after(29 * time.Minute),
			Failure{Next: after(30 * time.Minute)},
			never,
		},
		{"a replica with the former template may take its time", []Replica{starting("a", after(0), "")}, after(time.Hour), Failure{}, never},
		{"a replica without machines may, too", []Replica{starting("a", after(0), "cm")}, after(time.Hour), Failure{}, never},
		{
			"the deadline starts again when a replica becomes available, or is lost",
			[]Replica{starting("a", after(time.Minute), "c"), at("cr")[0]},
			after(40 * time.Minute),
			Failure{Next: after(50 * time.Minute)},
			after(20 * time.Minute),
		},
		{"and passes like the first one", []Replica{starting("a", after(time.Minute), "c")}, after(50 * time.Minute), Failure{Replica: "a", IsLate: true}, after(20 * time.Minute)},
		{"a replica that is ready for a moment may stay so", []Replica{starting("a", after(time.Minute), "cu")}, after(time.Hour), Failure{}, never},
		{"progress does not excuse a failure for good", []Replica{failing("c")}, after(20 * time.Minute), Failure{Replica: "a"}, after(19 * time.Minute)},
		{"a failure may be that of former pods", []Replica{failing("c")}, after(time.Minute), Failure{Next: after(2 * time.Minute)}, never},
		{"later it ends the rollout", []Replica{failing("c")}, after(2 * time.Minute), Failure{Replica: "a"}, never},
		{"unless the replica lacks a machine", []Replica{failing("cm")}, after(time.Hour), Failure{}, never},
		{"or is being deleted", []Replica{failing("cl")}, after(time.Hour), Failure{}, never},
		{"or has the former template", []Replica{failing("")}, after(time.Hour), Failure{}, never},
		{
			"the earliest deadline is the next look",
			[]Replica{starting("a", after(2*time.Minute), "c"), starting("b", after(time.Minute), "c")},
			after(3 * time.Minute),
			Failure{Next: after(31 * time.Minute)},
			never,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := Fails(test.have, Progress{Updated: began, Changed: test.changed}, test.now, Patience{2 * time.Minute, 30 * time.Minute})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}
