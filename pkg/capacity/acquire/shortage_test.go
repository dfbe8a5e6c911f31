// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

func TestNoteShortages(t *testing.T) {
	const lacks = "node n can allocate 3 of its 4 nvidia.com/gpu: its device plugin reports the others as unhealthy"
	minutes := func(n int) *metav1.Time { return new(metav1.NewTime(noon.Add(time.Duration(n) * time.Minute))) }
	since := func(n int) nodehealth.Fault {
		return nodehealth.Fault{Message: lacks, Since: minutes(n).Time, Grace: 7 * time.Minute}
	}
	reclaimed := nodehealth.Fault{Message: "the cloud is about to reclaim it"}
	tests := []struct {
		reason    string
		noted     *metav1.Time
		attempt   func(*v1beta1.Attempt)
		machine   func(*capacity.Machine)
		wantNoted *metav1.Time
		wantFault nodehealth.Fault
	}{
		{reason: "all GPUs are usable", machine: func(m *capacity.Machine) { m.Shortage = "" }},
		{reason: "a shortage counts from the first look", wantNoted: minutes(10), wantFault: since(10)},
		{reason: "later looks keep the beginning, those of another process too", noted: minutes(4), wantNoted: minutes(4), wantFault: since(4)},
		{reason: "a node that recovers is well", noted: minutes(4), machine: func(m *capacity.Machine) { m.Shortage = "" }},
		{
			reason:  "before all machines were usable, the deadlines of the start apply",
			attempt: func(a *v1beta1.Attempt) { a.ReadyTime = nil },
		},
		{reason: "an ended attempt is history", attempt: func(a *v1beta1.Attempt) { a.Reason = "Lost" }},
		{reason: "another machine of that name has its own record", machine: func(m *capacity.Machine) { m.UID = "another" }},
		{reason: "a node that joins is not judged yet", machine: func(m *capacity.Machine) { m.Initialized = false }},
		{reason: "a machine that leaves is not judged", machine: func(m *capacity.Machine) { m.Deleting = true }},
		{
			reason: "a silent node begins nothing", machine: func(m *capacity.Machine) { m.NodeReady = false },
		},
		{
			reason: "a silent node has no such fault: other deadlines apply", noted: minutes(4), wantNoted: minutes(4),
			machine: func(m *capacity.Machine) { m.NodeReady = false },
		},
		{
			reason: "a silent node ends nothing", noted: minutes(4), wantNoted: minutes(4),
			machine: func(m *capacity.Machine) { m.NodeReady, m.Shortage = false, "" },
		},
		{
			reason:  "an announced end comes first",
			machine: func(m *capacity.Machine) { m.Fault = reclaimed }, wantNoted: minutes(10), wantFault: reclaimed,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempt := v1beta1.Attempt{
				Number: 1, ReadyTime: &noon, Claims: []v1beta1.AttemptClaim{{Name: "m", UID: "uid", GPUsMissingSince: test.noted}},
			}
			if test.attempt != nil {
				test.attempt(&attempt)
			}
			machine := capacity.Machine{Name: "m", UID: "uid", NodeReady: true, Initialized: true, Shortage: lacks}
			if test.machine != nil {
				test.machine(&machine)
			}
			attempts, machines := Attempts{attempt}, Machines{machine}
			for range 2 { // the second look changes nothing
				attempts.NoteShortages(machines, noon.Add(10*time.Minute+300*time.Millisecond))
			}
			if diff := cmp.Diff(test.wantNoted, attempts[0].Claims[0].GPUsMissingSince); diff != "" {
				t.Errorf("noted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantFault, machines[0].Fault); diff != "" {
				t.Errorf("fault (-want +got):\n%s", diff)
			}
		})
	}
}
