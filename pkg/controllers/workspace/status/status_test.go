// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
)

var now = metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

// serving returns the facts of a Workspace whose model answers on one machine.
func serving() *status.Facts {
	plan := &planner.Plan{InstanceType: "gpu-small", Nodes: 1, GPUsPerNode: 1, GPUResource: "nvidia.com/gpu"}
	return &status.Facts{
		Workspace: status.Workspace{
			Namespace: "team-a", Name: "chat", Generation: 2, CreationTime: metav1.NewTime(now.Add(-time.Minute)), FetchesWeights: true,
		},
		Stored:   &v1beta1.WorkspaceStatus{},
		Plan:     status.Plan{Revision: "chat-1", Plan: plan, IsForSpec: true, Message: "1 × gpu-small"},
		Attempts: status.Attempts{All: []v1beta1.Attempt{{Number: 1, InstanceType: "gpu-small"}}, Open: 1},
		Machines: status.Machines{
			Serving:   []capacity.Machine{{Name: "m", Initialized: true, NodeName: "node-1", NodeReady: true, GPUs: 1}},
			NodeNames: []string{"node-1"}, Count: 1,
		},
		Pods: status.Pods{
			HasSet: true, ArePlaced: true, AreCurrent: true,
			Diagnosis: diagnosis.Finding{Ready: true, Reason: v1beta1.ReasonInferenceSuccess, Message: "the inference server answers"},
		},
		Endpoint: status.Endpoint{HasService: true, IsReachable: true, Revision: "chat-1", Models: []string{"model"}},
	}
}

func TestReady(t *testing.T) {
	stalled := &progress.StalledError{Reason: v1beta1.ReasonMisconfigured, Message: "mend it"}
	tests := []struct {
		reason string
		change func(*status.Facts)
		err    error
		want   string
	}{
		{reason: "everything is there", want: "True Serving"},
		{
			reason: "an error does not make a model unready that answers", err: errors.New("away"), want: "True Serving",
		},
		{
			reason: "there is no Service yet", want: "False Progressing",
			change: func(f *status.Facts) { f.Endpoint.HasService = false },
		},
		{
			reason: "the Service has no endpoint yet", want: "False NoEndpoint",
			change: func(f *status.Facts) { f.Endpoint.IsReachable = false },
		},
		{
			reason: "the Service of a Ready model has no endpoint for a moment", want: "True Serving",
			change: func(f *status.Facts) {
				f.Endpoint.IsReachable = false
				f.Stored.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}}
			},
		},
		{
			reason: "the pods of a model that was Ready restart, and its Service has no endpoint yet", want: "False NoEndpoint",
			change: func(f *status.Facts) {
				f.Endpoint.IsReachable = false
				f.Stored.Endpoint = &v1beta1.Endpoint{URL: "http://chat.team-a.svc"}
				f.Stored.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse}}
			},
		},
		{
			reason: "the name belongs to another object", want: "False NameTaken",
			err: &progress.StalledError{Reason: v1beta1.ReasonNameTaken, Message: "Service team-a/chat exists"},
		},
		{
			reason: "it is suspended", want: "False Suspended",
			change: func(f *status.Facts) { f.Workspace.IsSuspended = true },
		},
		{
			reason: "other machines serve what the spec asks for", want: "True Serving",
			change: func(f *status.Facts) { f.Machines.Serving, f.Endpoint.ServesSpec = nil, true },
		},
		{
			reason: "the machines serve a former spec", want: "False NodeClaimNotReady",
			change: func(f *status.Facts) { f.Machines.Serving = nil },
		},
		{
			reason: "a node that the plan names is gone", want: "False NodeNotReady",
			change: func(f *status.Facts) {
				f.Plan.Plan.NodeNames, f.Nodes = []string{"node-1"}, []status.Node{{Name: "node-1"}}
			},
		},
		{
			reason: "the user has to act", want: "False Misconfigured",
			change: func(f *status.Facts) { f.Machines.Serving, f.Attempts.Err = nil, stalled },
		},
		{
			reason: "KAITO's controller serves it", want: "Unknown Misconfigured", err: stalled,
			change: func(f *status.Facts) { f.Workspace.IsKAITOs = true },
		},
		{
			reason: "it was taken over from there", want: "True Frozen", err: &progress.WaitingError{Message: "frozen"},
			change: func(f *status.Facts) { f.Workspace.Frozen = &status.Frozen{Answers: true} },
		},
		{
			reason: "it was taken over, and its pods fail", want: "False WorkspaceInferenceStatusPending",
			change: func(f *status.Facts) { f.Workspace.Frozen = &status.Frozen{} },
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			facts := serving()
			if test.change != nil {
				test.change(facts)
			}
			after, _ := status.Compute(facts, test.err, now)
			ready := meta.FindStatusCondition(after.Conditions, v1beta1.ConditionReady)
			if got := string(ready.Status) + " " + ready.Reason; got != test.want {
				t.Errorf("Ready is %s (%s), want %s", got, ready.Message, test.want)
			}
		})
	}
}

// TestFirstPassFails checks that the API server accepts the status of a first pass that failed before a plan: its default
// for observedGeneration is -1, and conditions must not have that.
func TestFirstPassFails(t *testing.T) {
	facts := serving()
	facts.Plan, facts.Stored = status.Plan{}, &v1beta1.WorkspaceStatus{ObservedGeneration: -1}
	after, _ := status.Compute(facts, errors.New("away"), now)
	if after.ObservedGeneration != -1 {
		t.Errorf("the status observed generation %d without a plan", after.ObservedGeneration)
	}
	if len(after.Conditions) == 0 {
		t.Error("the status has no conditions")
	}
	for _, condition := range after.Conditions {
		if condition.ObservedGeneration != 0 {
			t.Errorf("condition %s has observedGeneration %d", condition.Type, condition.ObservedGeneration)
		}
	}
}

// TestComputeIsPure: Compute does not change its facts, and another computation from its own result returns the same
// status without events.
func TestComputeIsPure(t *testing.T) {
	facts := serving()
	before, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	first, events := status.Compute(facts, nil, now)
	if after, _ := json.Marshal(facts); string(after) != string(before) {
		t.Errorf("the facts changed:\n%s\n%s", before, after)
	}
	if len(events) == 0 {
		t.Error("the first status has no events")
	}
	facts.Stored = &first
	second, events := status.Compute(facts, nil, metav1.NewTime(now.Add(time.Hour)))
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the second status differs (-first +second):\n%s", diff)
	}
	if len(events) > 0 {
		t.Errorf("nothing happened, and there are events: %+v", events)
	}
}

// TestKept: our own conditions give the reason, and KAITO's conditions stay.
func TestKept(t *testing.T) {
	stored := &v1beta1.WorkspaceStatus{
		Conditions:  []metav1.Condition{{Type: v1beta1.ConditionInferenceReady, Status: metav1.ConditionTrue, Reason: "x"}},
		WorkerNodes: []string{"node-1"},
	}
	after, events := status.Kept(stored, 7, &progress.StalledError{Reason: v1beta1.ReasonServedByKAITO, Message: "left alone"}, now)
	if !meta.IsStatusConditionTrue(after.Conditions, v1beta1.ConditionInferenceReady) || len(after.WorkerNodes) != 1 {
		t.Errorf("KAITO's part of the status changed: %+v", after)
	}
	if !meta.IsStatusConditionTrue(after.Conditions, v1beta1.ConditionStalled) || after.ObservedGeneration != 7 || len(events) != 1 {
		t.Errorf("conditions %+v of generation %d and %d events; want Stalled, generation 7 and one event",
			after.Conditions, after.ObservedGeneration, len(events))
	}
}

// TestFaultyMachines covers machines that stay despite a fault.
func TestFaultyMachines(t *testing.T) {
	const withheld, lacks = "node-1 is broken; the machine stays", "node node-1 can allocate 1 of its 2 nvidia.com/gpu"
	tests := []struct {
		reason  string
		machine func(*capacity.Machine)
		// want are the conditions NodesReady, ResourceReady and Ready.
		want      []string
		wantEvent bool
	}{
		{
			reason: "replaced too often, and it serves", machine: func(m *capacity.Machine) { m.Withheld = withheld },
			want: []string{
				"NodesReady True FaultRepeats: 1 of 1 nodes ready; " + withheld, "ResourceReady True FaultRepeats: 1 of 1 nodes ready; " + withheld,
				"Ready True Serving: answers at http://chat.team-a.svc/v1",
			},
			wantEvent: true,
		},
		{
			reason: "replaced too often, and its GPUs are gone", machine: func(m *capacity.Machine) { m.Withheld, m.GPUs = withheld, 0 },
			want: []string{
				"NodesReady False FaultRepeats: " + withheld, "ResourceReady False FaultRepeats: " + withheld, "Ready False FaultRepeats: " + withheld,
			},
			wantEvent: true,
		},
		{
			reason: "replaced too often, and its node is silent", machine: func(m *capacity.Machine) { m.Withheld, m.NodeReady = withheld, false },
			want: []string{
				"NodesReady False FaultRepeats: " + withheld, "ResourceReady False FaultRepeats: " + withheld, "Ready False FaultRepeats: " + withheld,
			},
			wantEvent: true,
		},
		{
			reason: "a GPU is broken that the plan does not need", machine: func(m *capacity.Machine) { m.Shortage, m.Spared = lacks, lacks },
			want: []string{
				"NodesReady True NodesReady: 1 of 1 nodes ready; " + lacks + "; the plan needs only 1, so the machine stays: if a pod fails on a broken " +
					"GPU, delete the pod",
				"ResourceReady True workspaceResourceStatusSuccess: 1 of 1 nodes ready; " + lacks + "; the plan needs only 1, so the machine stays: if a " +
					"pod fails on a broken GPU, delete the pod",
				"Ready True Serving: answers at http://chat.team-a.svc/v1",
			},
		},
		{
			reason: "it is replaced for another fault",
			machine: func(m *capacity.Machine) {
				m.Shortage, m.Spared, m.Fault.Message = lacks, lacks, "the driver is broken"
			},
			want: []string{
				"NodesReady True NodesReady: 1 of 1 nodes ready",
				"ResourceReady True workspaceResourceStatusSuccess: 1 of 1 nodes ready",
				"Ready True Serving: answers at http://chat.team-a.svc/v1",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			before, _ := status.Compute(serving(), nil, now)
			facts := serving()
			facts.Stored = &before
			test.machine(&facts.Machines.Serving[0])
			after, events := status.Compute(facts, nil, now)
			var got []string
			for _, kind := range []string{v1beta1.ConditionNodesReady, v1beta1.ConditionResourceReady, v1beta1.ConditionReady} {
				c := meta.FindStatusCondition(after.Conditions, kind)
				got = append(got, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			isWarned := slices.ContainsFunc(events, func(e status.Event) bool { return e.IsWarning && e.Reason == v1beta1.ReasonFaultRepeats })
			if isWarned != test.wantEvent {
				t.Errorf("warned: %v, want %v: %v", isWarned, test.wantEvent, events)
			}
		})
	}
}
