// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"

	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Where a status is lost while nothing is held, the numbers of attempts begin anew. A controller that takes over may still see
// the StatefulSet of before, whose pods were told to run on the machines of an attempt that is no later one.
func TestHoldKnowsNoAttemptThatWasNotBegun(t *testing.T) {
	for name, test := range map[string]struct {
		pinned, held int32
		begun        bool
	}{
		"the pods move to the second":                    {2, 1, true},
		"the pods move to one that the machines tell of": {2, 1, false},
		"the set is of before":                           {5, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := pinnedSet(test.pinned)
			r := New(Config{Live: server(t), Provisioner: apart{}, Planner: thrifty{}, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := newScope(workspaceObject())
			s.revision, s.statefulSet = accepted(1), set
			s.begin(s.revision, 1, names(t, 1), now.Time)
			s.attempts[0].ReadyTime = &now
			if test.begun {
				s.begin(s.revision, 2, names(t, 2), now.Time)
			}
			s.machines = []capacity.Machine{
				machine(func(m *capacity.Machine) { m.Name, m.Attempt = names(t, 1)[0], 1 }),
				machine(func(m *capacity.Machine) { m.Name, m.Attempt = names(t, 2)[0], 2 }),
			}
			if err := decideSurge(t, r, s); err != nil {
				t.Fatal(err)
			}
			if s.surge.Serving != test.held || s.isMoved() != (test.held > 0) {
				t.Errorf("attempt %d is held, its pods have moved: %v; want %d", s.surge.Serving, s.isMoved(), test.held)
			}
		})
	}
}

// Where the status is lost, the machines are all that tells what was asked for, and a cache that lags tells of others: one
// that is gone would be taken for the one that serves, which would be let go.
func TestAdoptKnowsTheMachines(t *testing.T) {
	first, second := names(t, 1)[0], names(t, 2)[0]
	tests := []struct {
		reason      string
		shown, held []string
		leaving     string
		want        string
	}{
		{"one is there", []string{first}, []string{first}, "", first},
		{"two are there", []string{first, second}, []string{first, second}, "", first},
		{"one of two is on its way out", []string{first, second}, []string{second}, first, second},
		{"one of two is gone, which does not show yet", []string{first, second}, []string{second}, "", ""},
		{"another one has come, which does not show yet", []string{first}, []string{first, second}, "", ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{Provisioner: live{names: test.held}, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := newScope(workspaceObject())
			s.revision = accepted(1)
			for _, name := range test.shown {
				s.machines = append(s.machines, machine(func(m *capacity.Machine) { m.Name, m.Deleting = name, name == test.leaving }))
			}
			err := r.adopt(t.Context(), s)
			if waits := test.want == ""; progress.IsWaiting(err) != waits || err != nil != waits {
				t.Fatalf("error %v, want to wait: %v", err, waits)
			}
			got := ""
			if open := s.openAttempt(); open != nil {
				got = open.NodeClaims[0]
			}
			if got != test.want {
				t.Errorf("it took %q for its own, want %q", got, test.want)
			}
		})
	}
}

// A Workspace that tells of no attempt may have lost its status a moment after its first machines were asked for: an attempt
// that is begun before the cache shows them has the same number, and lets go of them. The pass that puts the finalizer on
// is the first, and asks nobody.
func TestNextKnowsTheMachines(t *testing.T) {
	tests := []struct {
		reason   string
		isNew    bool
		held     []string
		attempts []v1beta1.Attempt
		want     int32
	}{
		{"nothing is held", false, nil, nil, 1},
		{"a machine is held that does not show yet", false, names(t, 1), nil, 0},
		{"it is the first pass", true, names(t, 1), nil, 1},
		{"the status tells of an attempt", false, names(t, 1), []v1beta1.Attempt{{Number: 1, Reason: v1beta1.ReasonReleased}}, 2},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Status.Attempts = test.attempts
			r := New(Config{
				Planner: thrifty{},
				Client:  server(t), Live: server(t), Provisioner: live{names: test.held}, Catalog: emptyCatalog{},
				Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			s := newScope(ws)
			s.isNew, s.revision = test.isNew, accepted(1)
			err := r.next(t.Context(), s)
			if waits := test.want == 0; progress.IsWaiting(err) != waits || err != nil != waits {
				t.Fatalf("error %v, want to wait: %v", err, waits)
			}
			got := int32(0)
			if open := s.openAttempt(); open != nil {
				got = open.Number
			}
			if got != test.want {
				t.Errorf("attempt %d was begun, want %d", got, test.want)
			}
		})
	}
}
