// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMeasure(t *testing.T) {
	measured, err := load(".", []string{"./testdata/sample"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]Measurement{"testdata/sample": {
		{Methods, 3, "reconciler"},
		{Fields, 3, "state"},
		// Reconcile, begin, and three functions that call each other: end, reconciler.again, last.
		{Chain, 5, "reconciler.Reconcile"},
		// A method value counts as a call. The first file calls the second, and no file calls the first.
		{Cycle, 3, "fourth.go"},
		{Lines, 7, "end"},
	}}
	if diff := cmp.Diff(want, measured); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	rules := Rules{
		Ceilings:   map[Gate]int{Methods: 4},
		Exceptions: map[string]map[Gate]int{"old": {Methods: 9}},
	}
	tests := []struct {
		reason  string
		path    string
		methods int
		want    []string
	}{
		{"at the ceiling", "new", 4, nil},
		{"above the ceiling", "new", 5, []string{"new: methods of T: 5, at most 4"}},
		{"at its exception", "old", 9, nil},
		{"above its exception", "old", 10, []string{"old: methods of T: 10, at most 9"}},
		{"better than its exception, which must not leave room to get worse", "old", 8, []string{
			"old: methods: lower its exception in shape.yaml from 9 to 8",
		}},
		{"an exception that is not needed", "old", 4, []string{"old: methods: 4, so remove its exception from shape.yaml"}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := rules.Check(map[string][]Measurement{test.path: {{Methods, test.methods, "T"}}})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDepths(t *testing.T) {
	got := depths(map[string][]string{"a": {"b", "d"}, "b": {"c"}, "c": {"b"}, "d": nil})
	want := map[string]int{"a": 3, "b": 2, "c": 2, "d": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
