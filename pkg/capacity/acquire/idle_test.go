// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// waits returns a pass with a deadline of six hours. The machine of its attempt is usable, and costs $4 per hour from
// noon on.
func waits() *Snapshot {
	p := begun(readyOf(1, "A"))
	p.Machines = Machines{machineOf(1, 0, "A", func(m *capacity.Machine) { m.HourlyPrice, m.CreatedAt = 4, noon.Time })}
	p.Judge.IdleDeadline = 6 * time.Hour
	return &p.Snapshot
}

// moment is the input of a pass, some time after noon.
type moment struct {
	after  time.Duration
	change func(*Snapshot)
}

// TestIdleMachinesAreReleased releases machines that nobody has used for the deadline, and no others.
func TestIdleMachinesAreReleased(t *testing.T) {
	const deadline = 6 * time.Hour
	ready := func(s *Snapshot) {
		s.Pods.IsReady = true
		s.Attempts.NoteAnswered(0, true, s.Judge.Now)
	}
	fetching := func(proof time.Duration) func(*Snapshot) {
		return func(s *Snapshot) { s.Pods.FetchProof = noon.Add(proof) }
	}
	for _, tc := range []struct {
		reason  string
		moments []moment
		// ends: the last moment ends the attempt. No earlier one may end it.
		ends bool
	}{
		{"no pod is ever ready", []moment{{0, nil}, {deadline - time.Second, nil}, {deadline, nil}}, true},
		{"the controller was away", []moment{{0, nil}, {30 * time.Hour, nil}}, true},
		{"an upgraded controller sees it for the first time", []moment{{90 * 24 * time.Hour, nil}}, false},
		{"an upgraded controller has seen it for the deadline", []moment{{90 * 24 * time.Hour, nil}, {90*24*time.Hour + deadline, nil}}, true},
		{"a pod is ready", []moment{{0, nil}, {deadline, ready}}, false},
		{"a pod was ready once", []moment{
			{0, nil}, {time.Hour, ready}, {90 * 24 * time.Hour, nil}, {180 * 24 * time.Hour, nil},
		}, false},
		{"the pod is ready in the pass with its machine", []moment{
			{0, func(s *Snapshot) { s.Attempts[0].ReadyTime, s.Pods.IsReady = nil, true }}, {time.Hour, nil}, {90 * 24 * time.Hour, nil},
		}, false},
		{"no deadline is set", []moment{{0, nil}, {90 * 24 * time.Hour, func(s *Snapshot) { s.Judge.IdleDeadline = 0 }}}, false},
		{"its machine has not come", []moment{
			{0, func(s *Snapshot) { s.Attempts[0].ReadyTime, s.Machines[0].Initialized = nil, false }},
			{deadline, func(s *Snapshot) { s.Attempts[0].ReadyTime, s.Machines[0].Initialized = nil, false }},
		}, false},
		{"a fetch makes progress", []moment{{0, nil}, {20 * time.Hour, fetching(20 * time.Hour)}}, false},
		{"a fetch began a moment ago", []moment{{0, nil}, {deadline, fetching(deadline + time.Minute)}}, false},
		{"a fetch ends again and again", []moment{
			{0, nil}, {time.Hour, fetching(time.Hour + time.Minute)}, {5 * time.Hour, fetching(5*time.Hour + time.Minute)}, {deadline, nil},
		}, true},
		{"the engine starts after a long fetch", []moment{{0, nil}, {20 * time.Hour, fetching(time.Hour)}, {21 * time.Hour, nil}}, false},
		{"the engine does not start after a long fetch", []moment{
			{0, nil}, {20 * time.Hour, fetching(time.Hour)}, {21 * time.Hour, nil}, {21*time.Hour + deadline, nil},
		}, true},
		{"somebody edits it just before the deadline", []moment{
			{0, nil}, {deadline - time.Minute, func(s *Snapshot) { s.Workspace.Generation++ }}, {deadline + time.Hour, nil},
		}, false},
		{"somebody edits it at the deadline", []moment{{0, nil}, {deadline, func(s *Snapshot) { s.Workspace.Generation++ }}}, false},
		{"the edit is no better", []moment{
			{0, nil}, {time.Hour, func(s *Snapshot) { s.Workspace.Generation++ }}, {time.Hour + deadline, nil},
		}, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var attempts Attempts
			for i, at := range tc.moments {
				s := waits()
				if attempts != nil {
					s.Attempts = attempts
				}
				s.Judge.Now, s.Live.AreMachinesConfirmed = noon.Add(at.after), true
				if at.change != nil {
					at.change(s)
				}
				got, err := Decide(*s)
				if err != nil {
					t.Fatal(err)
				}
				last := got.Attempts.Last()
				want := ""
				if tc.ends && i == len(tc.moments)-1 {
					want = v1beta1.ReasonCannotServe
				}
				if last.Reason != want {
					t.Fatalf("after %s: the attempt ended with %q (%s), want %q", at.after, last.Reason, last.Message, want)
				}
				attempts = got.Attempts
			}
		})
	}
}

// TestIdleIsSaid: the verdict has the time, the cost and the fault, and excludes the machine type for nobody.
func TestIdleIsSaid(t *testing.T) {
	s := waits()
	s.Attempts[0].IdleTime = &noon
	s.Judge.Now = noon.Add(6*time.Hour + 20*time.Second)
	want := refusal.Verdict{
		Cause: refusal.CannotServe, Final: true,
		Message: "the machines are released because no pod was ready on them for 6h0m0s, at a cost of about $24.0: " +
			"pod chat-0 waits for the scheduler",
	}
	if diff := cmp.Diff(want, s.Failed(&s.Attempts[0])); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.Machines[0].HourlyPrice = -1
	if got := s.Failed(&s.Attempts[0]).Message; strings.Contains(got, "cost") {
		t.Errorf("the price is unknown, and the message is %q", got)
	}
}

// TestIdleExcusedBySurge: while other machines serve, the pods have yet to move.
func TestIdleExcusedBySurge(t *testing.T) {
	s := waits()
	s.Attempts[0].IdleTime, s.Surge.Serving = &noon, 9
	s.Judge.Now = noon.Add(90 * 24 * time.Hour)
	if got := s.Failed(&s.Attempts[0]); got.Final {
		t.Errorf("released: %s", got.Message)
	}
}

// TestIdleLooksAgain expects a pass at the deadline, because a pod that stays pending causes none.
func TestIdleLooksAgain(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*Snapshot)
		want   time.Duration
	}{
		{"its machine is usable just now", func(s *Snapshot) { s.Attempts[0].ReadyTime = nil }, 6 * time.Hour},
		{"it waits", func(s *Snapshot) { s.Attempts[0].IdleTime = &metav1.Time{Time: noon.Add(-time.Hour)} }, 5 * time.Hour},
		{"a fetch began", func(s *Snapshot) { s.Pods.FetchProof = noon.Add(time.Minute) }, time.Minute},
		{"a fetch makes progress, and its end is an event", func(s *Snapshot) { s.Pods.FetchProof = noon.Time }, 0},
		{"it has answered", func(s *Snapshot) { s.Attempts[0].AnsweredTime = &noon }, 0},
		{"no deadline is set", func(s *Snapshot) { s.Judge.IdleDeadline = 0 }, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := waits()
			tc.change(s)
			got, err := Decide(*s)
			if err != nil || got.Do != Keep || got.LookAgain != tc.want {
				t.Errorf("%s, again after %s, error %v; want after %s", got.Do, got.LookAgain, err, tc.want)
			}
		})
	}
}

// TestNoteAnswered: the attempt whose machines have the ready pod is marked, once.
func TestNoteAnswered(t *testing.T) {
	later := metav1.NewTime(noon.Add(time.Hour))
	ended := readyOf(1, "A")
	ended.Reason = v1beta1.ReasonReleased
	answered := readyOf(1, "A")
	answered.AnsweredTime = &noon
	type marks []*metav1.Time
	for _, tc := range []struct {
		reason   string
		attempts Attempts
		pinned   int32
		isMoving bool
		want     marks
	}{
		{"there is none", nil, 0, false, nil},
		{"one is open", Attempts{readyOf(1, "A")}, 0, false, marks{&later}},
		{"it is marked already", Attempts{answered}, 0, false, marks{&noon}},
		{"it has ended", Attempts{ended}, 0, false, marks{nil}},
		{"its machines have not come, so the pod is a former one's", Attempts{ended, attemptOf(2, "A")}, 0, false, marks{nil, nil}},
		{"a former one has ended", Attempts{ended, readyOf(2, "A")}, 0, false, marks{nil, &later}},
		{"others are acquired beside it", Attempts{readyOf(1, "A"), attemptOf(2, "B")}, 1, false, marks{&later, nil}},
		{"others are usable beside it", Attempts{readyOf(1, "A"), readyOf(2, "B")}, 1, false, marks{&later, nil}},
		{"the pods are moving, and the ready one may be an old one", Attempts{readyOf(1, "A"), readyOf(2, "B")}, 2, true, marks{nil, nil}},
		{"the pods have moved", Attempts{readyOf(1, "A"), readyOf(2, "B")}, 2, false, marks{nil, &later}},
		{"the set is from before the status was lost", Attempts{readyOf(1, "A")}, 5, false, marks{&later}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			tc.attempts.NoteAnswered(tc.pinned, !tc.isMoving, later.Time)
			var got marks
			for _, a := range tc.attempts {
				got = append(got, a.AnsweredTime)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestHasAnswered covers attempts that began under a version without a record of the first answer.
func TestHasAnswered(t *testing.T) {
	ready := noon.Time
	changed := func(status metav1.ConditionStatus, after time.Duration) *v1beta1.WorkspaceStatus {
		return &v1beta1.WorkspaceStatus{
			Attempts: []v1beta1.Attempt{readyOf(1, "A")},
			Conditions: []metav1.Condition{{
				Type: v1beta1.ConditionInferenceReady, Status: status, LastTransitionTime: metav1.NewTime(ready.Add(after)),
			}},
		}
	}
	with := func(status *v1beta1.WorkspaceStatus, change func(*v1beta1.WorkspaceStatus)) *v1beta1.WorkspaceStatus {
		change(status)
		return status
	}
	for _, test := range []struct {
		reason string
		status *v1beta1.WorkspaceStatus
		want   bool
	}{
		{"the answer is recorded", with(changed(metav1.ConditionFalse, -time.Minute), func(s *v1beta1.WorkspaceStatus) {
			s.Attempts[0].AnsweredTime = &noon
		}), true},
		{"the model answers", changed(metav1.ConditionTrue, time.Minute), true},
		{"the model answered on the machines until later", changed(metav1.ConditionFalse, time.Hour), true},
		{"the model has not answered since they became usable", changed(metav1.ConditionFalse, -time.Minute), false},
		{"they never became usable", with(changed(metav1.ConditionFalse, time.Hour), func(s *v1beta1.WorkspaceStatus) {
			s.Attempts[0].ReadyTime = nil
		}), false},
		{"the model may have answered on other machines", with(changed(metav1.ConditionFalse, time.Hour), func(s *v1beta1.WorkspaceStatus) {
			s.Attempts = append(s.Attempts, readyOf(2, "A"))
		}), false},
		{"other machines never became usable", with(changed(metav1.ConditionFalse, time.Hour), func(s *v1beta1.WorkspaceStatus) {
			s.Attempts = append(s.Attempts, attemptOf(2, "A"))
		}), true},
		{"nothing is known of the model", with(changed(metav1.ConditionFalse, time.Hour), func(s *v1beta1.WorkspaceStatus) {
			s.Conditions = nil
		}), false},
	} {
		if got := HasAnswered(test.status, &test.status.Attempts[0]); got != test.want {
			t.Errorf("%s: %v, want %v", test.reason, got, test.want)
		}
	}
}
