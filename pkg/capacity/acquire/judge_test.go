// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// TestObserve covers machines that are missing in the cache.
func TestObserve(t *testing.T) {
	created, ready := metav1.NewTime(start.Add(10*time.Minute)), metav1.NewTime(start.Add(15*time.Minute))
	attempt := func(change ...func(*v1beta1.Attempt)) *v1beta1.Attempt {
		out := begun(1, "a")
		out.Claims = []v1beta1.AttemptClaim{{Name: "a", UID: "a", CreationTime: &created}}
		for _, c := range change {
			c(&out)
		}
		return &out
	}
	isReady := func(a *v1beta1.Attempt) { a.ReadyTime = &ready }
	old := func(a *v1beta1.Attempt) { a.ReadyTime, a.Claims = &ready, nil }
	replaced := func(a *v1beta1.Attempt) {
		a.ReadyTime, a.Claims[0].Stage = &ready, "Usable"
		a.Claims[0].CreationTime = new(metav1.NewTime(ready.Add(time.Hour)))
	}
	tests := []struct {
		reason  string
		attempt *v1beta1.Attempt
		name    string
		existed bool
		created time.Time
		usable  bool
	}{
		{"it vanished, and is as old as it was and not as its attempt", attempt(), "a", true, created.Time, false},
		{"it served and vanished", attempt(isReady), "a", true, created.Time, true},
		{"it replaced another, served and vanished", attempt(replaced), "a", true, ready.Add(time.Hour), true},
		{"it was not asked for yet", attempt(), "b", false, start, false},
		{"the plan has grown since the others served", attempt(isReady), "b", false, start, true},
		{"an earlier version kept no names", attempt(old), "a", true, start, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			judge := acquire.Judge{Now: start.Add(time.Hour)}
			got := judge.Observe(&acquire.Case{Attempt: test.attempt, Names: []string{test.name}, IsConfirmed: true}, test.name)
			if got.Existed != test.existed || !got.CreatedAt.Equal(test.created) || got.WasUsable != test.usable {
				t.Errorf("existed %t, created %s, usable %t; want %t, %s, %t",
					got.Existed, got.CreatedAt, got.WasUsable, test.existed, test.created, test.usable)
			}
		})
	}
}

// TestReplacementsAreJudgedAsTheOthers: a replacement counts as usable, like the first machines of a ready attempt.
// Later its GPUs may be missing, and the start-up deadlines no longer apply.
func TestReplacementsAreJudgedAsTheOthers(t *testing.T) {
	later := metav1.NewTime(start.Add(time.Hour))
	attempt := begun(1, "a")
	attempt.ReadyTime = new(metav1.NewTime(start.Add(time.Minute)))
	attempt.Claims = []v1beta1.AttemptClaim{{Name: "a", UID: "u", CreationTime: &later, Stage: "Usable"}}
	for _, test := range []struct {
		reason string
		uid    types.UID
		want   bool
	}{
		{"the recorded machine", "u", true},
		{"another machine of that name, which is not recorded yet", "v", false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			machines := acquire.Machines{{Name: "a", UID: test.uid, NodeName: "n", Initialized: true, CreatedAt: later.Time}}
			judge := acquire.Judge{Now: start.Add(2 * time.Hour)}
			got := judge.Observe(&acquire.Case{Attempt: &attempt, Names: []string{"a"}, Machines: machines, GPUs: 8}, "a")
			if got.WasUsable != test.want {
				t.Errorf("usable: %t, want %t", got.WasUsable, test.want)
			}
		})
	}
}

// TestVanished: a machine has been missing in the cache for long. It counts as vanished only once the API server
// confirms that. Otherwise the Workspace would record a refusal that never happened.
func TestVanished(t *testing.T) {
	attempt := begun(1, "a")
	attempt.Claims = []v1beta1.AttemptClaim{{Name: "a", UID: "machine-1"}}
	tests := []struct {
		reason      string
		after       time.Duration
		isConfirmed bool
		stands      bool
		needs       acquire.Need
		again       time.Duration
	}{
		{"the cache may lag", time.Second, false, true, acquire.NeedsNothing, 4 * time.Second},
		{"the API server has yet to answer", time.Minute, false, false, acquire.NeedsMachines, 0},
		{"the API server does not serve it", time.Minute, true, false, acquire.NeedsNothing, 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			judge := acquire.Judge{Now: start.Add(test.after)}
			got := judge.Observe(&acquire.Case{Attempt: &attempt, Names: []string{"a"}, IsConfirmed: test.isConfirmed}, "a")
			if got.Stands != test.stands || got.Needs != test.needs || got.LookAgain != test.again {
				t.Errorf("stands %t, needs %d, looks again after %s; want %t, %d, %s",
					got.Stands, got.Needs, got.LookAgain, test.stands, test.needs, test.again)
			}
			if isGone := !got.GoneAt.IsZero(); isGone != test.isConfirmed {
				t.Errorf("gone at %s", got.GoneAt)
			}
		})
	}
}

// TestJudgeReadsNoMoreThanItNeeds covers the reads that a judgement needs: none for a usable machine, and for a lost
// one a confirmation and the reasons.
func TestJudgeReadsNoMoreThanItNeeds(t *testing.T) {
	leaving := machine(func(m *capacity.Machine) { m.Name, m.Deleting, m.DeletingSince = "a", true, start.Add(time.Minute) })
	usable := machine(func(m *capacity.Machine) { m.Name = "a" })
	reasons := &acquire.Reasons{}
	tests := []struct {
		reason      string
		machine     capacity.Machine
		isConfirmed bool
		reasons     *acquire.Reasons
		want        acquire.Need
		final       bool
	}{
		{"it is usable", usable, false, nil, acquire.NeedsNothing, false},
		{"it is leaving, and a former leader may have created its successor", leaving, false, nil, acquire.NeedsMachines, true},
		{"it is leaving for an unknown reason", leaving, true, nil, acquire.NeedsReasons, true},
		{"it is leaving", leaving, true, reasons, acquire.NeedsNothing, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempt := begun(1, "a")
			judge := acquire.Judge{Now: start.Add(time.Hour)}
			got := judge.Judge(&acquire.Case{
				Attempt: &attempt, Names: []string{"a"}, Machines: acquire.Machines{test.machine},
				IsConfirmed: test.isConfirmed, Reasons: test.reasons,
			})
			if got.Needs != test.want || got.Machines[0].Verdict.Final != test.final {
				t.Errorf("needs %d, final %t; want %d, %t", got.Needs, got.Machines[0].Verdict.Final, test.want, test.final)
			}
		})
	}
}

// TestLostMachineIsNotJudgedAgain: a lost machine that is still in the cache does not affect its successor.
func TestLostMachineIsNotJudgedAgain(t *testing.T) {
	attempt := begun(1, "a")
	attempt.Claims = []v1beta1.AttemptClaim{{Name: "a", Lost: &v1beta1.LostClaim{UID: "machine-1"}}}
	attempt.ReadyTime = new(metav1.NewTime(start))
	judge := acquire.Judge{Now: start.Add(time.Hour)}
	got := judge.Judge(&acquire.Case{
		Attempt: &attempt, Names: []string{"a"}, Lost: []types.UID{"machine-1"},
		Machines: acquire.Machines{machine(func(m *capacity.Machine) { m.Name, m.Deleting, m.DeletingSince = "a", true, start })},
	})
	if got.Machines[0].Existed || got.Machines[0].Verdict.Final || got.Needs != acquire.NeedsNothing {
		t.Errorf("got %+v, want a machine that has yet to be asked for", got)
	}
}

// TestFaultCountsFromTheMachine: the status reports since when nodes are missing. That time counts for a machine only
// from its own initialization on, because its node may appear in the cache later.
func TestFaultCountsFromTheMachine(t *testing.T) {
	joined := start.Add(-time.Minute)
	tests := []struct {
		reason  string
		machine capacity.Machine
		want    time.Time
	}{
		{"its node was never seen", capacity.Machine{NodeName: "n", Initialized: true, Words: capacity.Words{
			Initialized: refusal.Condition{Status: refusal.StatusTrue, Since: joined},
		}}, joined.Add(10 * time.Minute)},
		{"its node reports it", capacity.Machine{NodeName: "n", Initialized: true, NodeSince: start.Add(-time.Hour)}, start.Add(-50 * time.Minute)},
		{"it is older", capacity.Machine{NodeName: "n", Initialized: true, Words: capacity.Words{
			Initialized: refusal.Condition{Status: refusal.StatusTrue, Since: start.Add(-5 * time.Hour)},
		}}, start.Add(-110 * time.Minute)},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			nodes := acquire.Nodes{Grace: 10 * time.Minute, MissingSince: start.Add(-2 * time.Hour)}
			if fault := nodes.Fault(&test.machine, start); !fault.Deadline.Equal(test.want) {
				t.Errorf("counts as lost from %s, want %s", fault.Deadline, test.want)
			}
		})
	}
}
