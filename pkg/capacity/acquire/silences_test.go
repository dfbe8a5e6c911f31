// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// minutes returns a time before or after noon.
func minutes(of int) time.Time { return noon.Add(time.Duration(of) * time.Minute) }

// countedAt returns a fault that counts.
func countedAt(node string, minute int) v1beta1.AttemptFault {
	return v1beta1.AttemptFault{UID: "uid-" + node, Node: node, Time: metav1.NewTime(minutes(minute)), Message: "an earlier fault"}
}

// silentSince lets the node of a machine be silent from a minute on.
func silentSince(minute int) func(*capacity.Machine) {
	return func(m *capacity.Machine) { m.UID, m.NodeReady, m.NodeSince = types.UID(m.Name), false, minutes(minute) }
}

// TestWithholdSilent has a machine whose node has been silent for five minutes.
func TestWithholdSilent(t *testing.T) {
	two := []v1beta1.AttemptFault{countedAt("node-x", -60), countedAt("node-y", -30)}
	const kept = "node node-2-0 has not been Ready since 11:55:00 UTC; the machine stays, because 2 faults counted within 24 hours " +
		"(node-x at 2026-11-23 11:00:00 UTC, node-y at 2026-11-23 11:30:00 UTC), so the engine itself may be the cause: check the logs of the " +
		"pods; to replace the machine before 2026-11-24 11:00:00 UTC, delete node node-2-0"
	unheard := nodehealth.Listen([]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "system"}}})
	tests := []struct {
		reason  string
		former  []v1beta1.AttemptFault
		machine func(*capacity.Machine)
		nodes   Nodes
		later   []v1beta1.Attempt
		want    string
		// wantLost: the machine is lost ten minutes after its node fell silent.
		wantLost bool
		wantNext time.Duration
	}{
		{reason: "nothing has counted yet", wantLost: true},
		{reason: "the bound has room", former: two[:1], wantLost: true},
		{reason: "two have counted", former: two, want: kept, wantNext: 23 * time.Hour},
		{reason: "a day later", former: []v1beta1.AttemptFault{countedAt("node-x", -24*60), countedAt("node-y", -30)}, wantLost: true},
		{
			reason: "it was silent when the second one counted", wantLost: true,
			former: []v1beta1.AttemptFault{countedAt("node-x", -60), countedAt("node-y", -4)},
		},
		{reason: "its successor is being acquired", former: two, later: []v1beta1.Attempt{attemptOf(3, "B")}, wantLost: true},
		{reason: "silent nodes never count", former: two, nodes: Nodes{Grace: -1}},
		{reason: "the control plane has lost contact", former: two, nodes: Nodes{Grace: 10 * time.Minute, Silence: unheard}},
		{reason: "its node is gone", former: two, machine: func(m *capacity.Machine) { m.NodeSince = time.Time{} }, wantLost: true},
		{reason: "its NodeClaim is being deleted", former: two, machine: func(m *capacity.Machine) { m.Deleting = true }, wantLost: true},
		{reason: "its node is Ready", former: two, machine: func(m *capacity.Machine) { m.NodeReady = true }},
		{
			reason: "the cloud has announced its end", former: two, wantLost: true,
			machine: func(m *capacity.Machine) {
				m.Fault = nodehealth.Fault{Message: "node-2-0 is about to be reclaimed", Since: minutes(-5), Announced: true}
			},
		},
		{
			reason: "its node reported a fault before", former: two, want: kept, wantNext: 23 * time.Hour,
			machine: func(m *capacity.Machine) {
				m.Withheld = "node node-2-0 reports SysLogsXIDError=True: 13; the machine stays"
			},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempts := append(Attempts{{Number: 1, Reason: "Lost", Faults: test.former}, readyOf(2, "A")}, test.later...)
			machines := Machines{machineOf(2, 0, "A", silentSince(-5))}
			if test.machine != nil {
				test.machine(&machines[0])
			}
			nodes := test.nodes
			if nodes.Grace == 0 {
				nodes.Grace = 10 * time.Minute
			}
			nodes.Grace = max(0, nodes.Grace)
			next := attempts.WithholdSilent(machines, &nodes, noon.Time)
			if machines[0].Withheld != test.want || next != test.wantNext {
				t.Errorf("withheld %q, next look %s; want %q, %s", machines[0].Withheld, next, test.want, test.wantNext)
			}
			fault := nodes.Fault(&machines[0], noon.Time)
			if isLost := fault.Message != "" && !minutes(10).Before(fault.Deadline); isLost != test.wantLost {
				t.Errorf("defect %q counts from %s; want it to count within ten minutes: %v", fault.Message, fault.Deadline, test.wantLost)
			}
		})
	}
}

// TestPodOutlivesRecord has a lost machine of two whose pods request others. Its pod is deleted only once the status has the
// reason: after a crash in between, the loss would not count.
func TestPodOutlivesRecord(t *testing.T) {
	tests := []struct {
		reason  string
		machine func(*capacity.Machine)
	}{
		{"its node is silent", silentSince(-11)},
		{"its node reports a fault", func(m *capacity.Machine) {
			m.UID, m.Fault = types.UID(m.Name), nodehealth.Fault{Message: "XID 79", Since: minutes(-11)}
		}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempt := attemptFor(2, "A", 2)
			attempt.StartTime, attempt.ReadyTime = metav1.NewTime(minutes(-30)), new(metav1.NewTime(minutes(-20)))
			snapshot := begun(attempt).Snapshot
			snapshot.Workspace.Status.Attempts = snapshot.Attempts.Clone()
			snapshot.Accepted, snapshot.Machines = wanted(2), Machines{machineOf(2, 0, "A", test.machine), machineOf(2, 1, "A")}
			snapshot.Surge = Surge{Replaces: capacity.ReplacesPod}
			snapshot.Judge.Nodes.Grace = 10 * time.Minute
			snapshot.Live = Live{AreMachinesConfirmed: true, Reasons: map[int32]*Reasons{2: {}}}
			snapshot.Attempts.NoteFaults(snapshot.Machines, nil, noon.Time)
			var steps []Do
			for range 2 {
				decision, err := Decide(snapshot)
				if err != nil {
					t.Fatal(err)
				}
				steps = append(steps, decision.Do)
				snapshot.Attempts, snapshot.Workspace.Status.Attempts = decision.Attempts, decision.Attempts.Clone()
			}
			if diff := cmp.Diff([]Do{Record, Replace}, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if got := len(snapshot.Attempts.faultsSince(time.Time{})); got != 1 {
				t.Errorf("%d faults count, want 1", got)
			}
		})
	}
}

// TestSilencesCount has machines of one attempt, some of them silent for more than the grace of ten minutes.
func TestSilencesCount(t *testing.T) {
	const message = "node node-2-0 has not been Ready since 11:49:00 UTC"
	fault := func(node string) v1beta1.AttemptFault {
		return v1beta1.AttemptFault{UID: "chat-2-0", Node: node, Time: noon, Message: message, ReplacedTime: new(noon)}
	}
	removed := func(m *capacity.Machine) { m.UID, m.Deleting, m.DeletingSince = types.UID(m.Name), true, minutes(-1) }
	tests := []struct {
		reason   string
		machines Machines
		replaces capacity.Replacing
		former   []v1beta1.AttemptFault
		want     Do
		// wantFaults are all recorded faults.
		wantFaults []v1beta1.AttemptFault
	}{
		{
			reason: "one machine", machines: Machines{machineOf(2, 0, "A", silentSince(-11))},
			want: Release, wantFaults: []v1beta1.AttemptFault{fault("node-2-0")},
		},
		{
			reason: "the third", machines: Machines{machineOf(2, 0, "A", silentSince(-11))},
			former: []v1beta1.AttemptFault{countedAt("node-x", -60), countedAt("node-y", -30)},
			want:   Keep, wantFaults: []v1beta1.AttemptFault{countedAt("node-x", -60), countedAt("node-y", -30)},
		},
		{reason: "the provisioner deletes it", machines: Machines{machineOf(2, 0, "A", removed)}, want: Await},
		{
			reason:   "one of two, which is replaced by itself",
			machines: Machines{machineOf(2, 0, "A", silentSince(-11)), machineOf(2, 1, "A")}, replaces: capacity.ReplacesLater,
			want: Replace, wantFaults: []v1beta1.AttemptFault{fault("node-2-0")},
		},
		{
			reason:   "two of three at the same time",
			machines: Machines{machineOf(2, 0, "A", silentSince(-11)), machineOf(2, 1, "A", silentSince(-10)), machineOf(2, 2, "A")},
			replaces: capacity.ReplacesLater, want: Replace, wantFaults: []v1beta1.AttemptFault{fault("node-2-0")},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempt := attemptFor(2, "A", len(test.machines))
			attempt.StartTime, attempt.ReadyTime = metav1.NewTime(minutes(-30)), new(metav1.NewTime(minutes(-20)))
			snapshot := begun(v1beta1.Attempt{Number: 1, Reason: "Lost", Faults: test.former}, attempt).Snapshot
			snapshot.Accepted, snapshot.Machines = wanted(len(test.machines)), test.machines
			snapshot.Surge.Replaces = test.replaces
			snapshot.Judge.Nodes.Grace = 10 * time.Minute
			snapshot.Live = Live{AreMachinesConfirmed: true, ArePodsConfirmed: true, Reasons: map[int32]*Reasons{2: {}}}
			snapshot.Attempts.WithholdSilent(snapshot.Machines, &snapshot.Judge.Nodes, noon.Time)
			step := Record
			var decision Decision
			for step == Record { // as the controller does
				var err error
				if decision, err = Decide(snapshot); err != nil || decision.Read.Needs != NeedsNothing {
					t.Fatalf("error %v, needs %v", err, decision.Read)
				}
				snapshot.Attempts, snapshot.Workspace.Status.Attempts, step = decision.Attempts, decision.Attempts, decision.Do
			}
			if step != test.want {
				t.Errorf("step %s, want %s", step, test.want)
			}
			if diff := cmp.Diff(test.wantFaults, decision.Attempts.faultsSince(time.Time{})); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if ended := decision.Attempts.Last(); step == Release && ended.Reason != string(refusal.Lost) {
				t.Errorf("the attempt ended with %q", ended.Reason)
			}
		})
	}
}
