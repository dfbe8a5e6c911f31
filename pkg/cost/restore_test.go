// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/cost"
)

// TestRestoreContinues restores a ledger from the copy of its namespace. Each machine has the time and the states that
// it would have without the loss.
func TestRestoreContinues(t *testing.T) {
	s := time.Second
	for _, tc := range []struct {
		reason        string
		before, after []cost.Machine
		want          map[string]float64
	}{
		{"it serves", []cost.Machine{serving(0)}, []cost.Machine{serving(0)}, map[string]float64{"serving": 1000}},
		{"it starts", []cost.Machine{launched(0)}, []cost.Machine{launched(0)}, map[string]float64{"starting": 1000}},
		{"it has served, and does not answer", []cost.Machine{serving(0)}, []cost.Machine{broken(700 * s)}, map[string]float64{"serving": 700, "idle": 300}},
		{"it was launched after the copy", nil, []cost.Machine{launched(900 * s)}, map[string]float64{"starting": 100}},
		{"it ended after the copy", []cost.Machine{launched(0)}, nil, map[string]float64{"wasted": 1000, "unsure": 400}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := cost.New()
			l.Observe(cost.Step{At: noon})
			l.Observe(cost.Step{At: noon, Machines: tc.before})
			l.Observe(cost.Step{At: noon.Add(600 * s), Elapsed: 600 * s, Machines: tc.before})
			copied := again(t, cost.Join(l.Extract("team-a"), l.Extract("team-b")))
			got := cost.Restore(noon.Add(1000*s), map[string]*cost.Ledger{"team-a": copied}, tc.after)
			if diff := cmp.Diff(tc.want, times(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReturnAfterRestore: a machine that is missing in the first list after a restoration is not charged again.
func TestReturnAfterRestore(t *testing.T) {
	l := cost.New()
	l.Observe(cost.Step{At: noon})
	l.Observe(cost.Step{At: noon.Add(time.Minute), Elapsed: time.Minute, Machines: []cost.Machine{launched(0)}})
	l = cost.Restore(noon.Add(2*time.Minute), map[string]*cost.Ledger{"team-a": l.Extract("team-a")}, nil)
	l.Observe(cost.Step{At: noon.Add(2*time.Minute + time.Second), Elapsed: time.Second, Machines: []cost.Machine{launched(0)}})
	if got := total(t, l).Millis; got > 121_000 {
		t.Errorf("%d ms in 121 s", got)
	}
}

// TestJoinKeepsTime: a machine in two ledgers has the time of both.
func TestJoinKeepsTime(t *testing.T) {
	l := cost.New()
	l.Observe(cost.Step{At: noon, Machines: []cost.Machine{launched(-time.Hour)}})
	got := times(cost.Join(l, l))
	if want := map[string]float64{"starting": 7200}; !maps.Equal(want, got) {
		t.Errorf("%v, want %v", got, want)
	}
}
