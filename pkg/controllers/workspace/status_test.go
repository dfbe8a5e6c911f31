// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

var update = flag.Bool("update", false, "write the golden files")

var now = metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))

func workspaceObject() *v1beta1.Workspace {
	ws := &v1beta1.Workspace{}
	ws.Namespace, ws.Name, ws.UID, ws.Generation = "team-a", "chat", "uid-1", 3
	ws.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
	ws.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "some-model"}}
	return ws
}

func accepted(nodes int) *revision.Revision {
	return &revision.Revision{
		Name: "chat-0123456789",
		Revision: render.Revision{
			Plan: planner.Plan{
				InstanceType: "Standard_NC24ads_A100_v4", Nodes: nodes, Accelerator: "A100-80", GPUResource: "nvidia.com/gpu",
				GPUsPerNode: 1, MachineGPUs: 1, CapacityType: v1beta1.CapacityOnDemand, HourlyPrice: 3.673, Engine: "llamacpp",
				Memory: &planner.Memory{Total: 79.15, Weights: 14.96, KVCache: 4, Overhead: 1.5, Basis: v1beta1.BasisEstimated},
			},
			Rendered: render.Rendered{ServedNames: []string{"some-model", "org/Some-Model"}},
		},
	}
}

func machine(change ...func(*capacity.Machine)) capacity.Machine {
	m := capacity.Machine{
		Name: "chat-aaaa", InstanceType: "Standard_NC24ads_A100_v4", CapacityType: v1beta1.CapacityOnDemand,
		Launched: true, Registered: true, Initialized: true,
		NodeName: "node-1", NodeReady: true, GPUs: 1,
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func launching(m *capacity.Machine) {
	m.Launched, m.Registered, m.Initialized, m.NodeName, m.NodeReady, m.GPUs = false, false, false, "", false, 0
	m.Reason, m.Message = "LaunchFailed", "creating instance: quota of 0 vCPUs exceeded"
}

func withoutGPUs(m *capacity.Machine) { m.GPUs = 0 }

func notReady(m *capacity.Machine) { m.NodeReady = false }

func podReady() corev1.Pod {
	pod := corev1.Pod{}
	pod.Name, pod.UID = "chat-0", "pod-1"
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

func readySet() *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{}
	set.Status.ReadyReplicas = 1
	return set
}

// refused returns a final verdict on a refused machine.
func refused(cause refusal.Cause) refusal.Verdict {
	return refusal.Verdict{
		Cause: cause, Message: "the words of the cloud", Fix: "mend it", Cooldown: time.Hour, Final: true,
		Scope: refusal.Scope{
			Breadth: refusal.SKU, Name: "Standard_NC24ads_A100_v4", Zone: refusal.Any, CapacityType: v1beta1.CapacityOnDemand,
		},
	}
}

// TestStatus pins the messages to users in each situation, word for word.
func TestStatus(t *testing.T) {
	wasReady := func(s *scope.Scope) {
		s.Workspace.Status.State = v1beta1.StateReady
		s.Workspace.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonServing, LastTransitionTime: now},
			{Type: v1beta1.ConditionInferenceReady, Status: metav1.ConditionTrue, Reason: "x", LastTransitionTime: now},
		}
	}
	exhausted := &progress.WaitingError{
		Reason: v1beta1.ReasonQuota, Message: "every suitable machine type is cooling down until 2026-11-20 13:00:00 UTC",
	}
	mend := &progress.StalledError{Reason: v1beta1.ReasonMisconfigured, Message: "the words of the cloud; mend it"}
	tests := []struct {
		reason                string
		change                func(*scope.Scope)
		err                   error
		noService, noEndpoint bool
	}{
		{
			reason: "no plan: the preset is unknown", err: &progress.StalledError{Reason: v1beta1.ReasonUnknownPreset, Message: "no preset x"},
			change: func(s *scope.Scope) {
				s.PlanErr = &progress.StalledError{Reason: v1beta1.ReasonUnknownPreset, Message: "no preset x"}
			},
		},
		{
			reason: "planned, and the name is taken", change: func(s *scope.Scope) { s.Revision = accepted(1) },
			err: &progress.StalledError{Reason: v1beta1.ReasonNameTaken, Message: "Service team-a/chat exists"},
		},
		{
			reason: "planned, and no provisioner", err: classify(&capacity.NotInstalledError{
				Why: "Karpenter is not installed in this cluster", Fix: "install Karpenter with a provider for your cloud",
			}),
			change: func(s *scope.Scope) {
				s.Revision = accepted(1)
				s.CapacityErr = classify(&capacity.NotInstalledError{
					Why: "Karpenter is not installed in this cluster", Fix: "install Karpenter with a provider for your cloud",
				})
			},
		},
		{reason: "the machine has been asked for", change: func(s *scope.Scope) {
			s.Revision = accepted(1)
			begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
			s.Created = []capacity.Created{{Name: "chat-aaaa", UID: "claim-1"}}
			s.AddCreated(s.Created, now.Time)
		}},
		{reason: "the provisioner has not looked at the machine yet", change: func(s *scope.Scope) {
			s.Revision = accepted(1)
			begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
			s.Machines = []capacity.Machine{machine(launching, func(m *capacity.Machine) {
				m.Reason, m.Message = "AwaitingReconciliation", "object is awaiting reconciliation"
			})}
		}},
		{reason: "the cloud refuses the machine", change: func(s *scope.Scope) {
			s.Revision = accepted(1)
			s.Machines = []capacity.Machine{machine(launching)}
		}},
		{reason: "the cloud refuses the machine, and may still think better of it", change: func(s *scope.Scope) {
			s.Revision = accepted(1)
			s.Machines = []capacity.Machine{machine(launching)}
			s.Verdict = refused(refusal.Quota)
			s.Verdict.Final, s.Verdict.LookAgain = false, now.Add(2*time.Minute)
		}},
		{reason: "one of two machines is there", change: func(s *scope.Scope) {
			s.Revision = accepted(2)
			s.Machines = []capacity.Machine{machine()}
		}},
		{reason: "the node is not Ready", change: func(s *scope.Scope) {
			s.Revision = accepted(1)
			s.Machines = []capacity.Machine{machine(notReady)}
		}},
		{reason: "the node shows no GPU", change: func(s *scope.Scope) {
			s.Revision = accepted(1)
			s.Machines = []capacity.Machine{machine(withoutGPUs)}
		}},
		{reason: "the node shows some of its GPUs", change: func(s *scope.Scope) {
			s.Revision, s.Machines = accepted(1), []capacity.Machine{machine()}
			s.Revision.Plan.GPUsPerNode, s.Revision.Plan.MachineGPUs = 8, 8
		}},
		{reason: "it serves", change: func(s *scope.Scope) {
			s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.Machines = []capacity.Machine{machine()}
		}},
		{reason: "it serves, and another plan is got beside it", change: func(s *scope.Scope) {
			surging(s)
			s.Revision.Plan.InstanceType = "Standard_ND96asr_v4"
		}},
		{reason: "it serves as the spec asks for, and the cloud is about to reclaim the node's machine", change: func(s *scope.Scope) {
			surging(s)
			s.Revision = s.Previous
			s.Surge.Fault = "node node-1 has the taint x: the cloud is about to reclaim the node's machine"
		}},
		{reason: "it serves, and no other plan can be had", change: func(s *scope.Scope) {
			surging(s)
			s.Revision.Plan.InstanceType = "Standard_ND96asr_v4"
			s.EndAttempt(refused(refusal.Quota), now.Time)
			s.CapacityErr = exhausted
		}},
		{reason: "it serves, and what it was to serve on is misconfigured", change: func(s *scope.Scope) {
			surging(s)
			s.Revision.Plan.InstanceType = "Standard_ND96asr_v4"
			s.EndAttempt(refused(refusal.Misconfigured), now.Time)
			s.CapacityErr = mend
		}},
		{reason: "it served, and is let go first for want of money", err: &progress.WaitingError{Message: "waiting for machines to be deleted: chat-aaaa"}, change: func(s *scope.Scope) {
			surging(s)
			s.Surge.Serving, s.Previous = 0, nil
			letAllGo(s, "the serving machines are released before others are bought: a limit", now.Time)
			s.Recreates = "the serving machines are released before others are bought: a limit"
			s.CapacityErr = &progress.WaitingError{Message: s.Recreates + "; waiting for machines to be deleted: chat-aaaa"}
		}},
		{reason: "the inference server answers, and its Service is still to come", noService: true, change: func(s *scope.Scope) {
			s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.Machines = []capacity.Machine{machine()}
		}},
		{reason: "the inference server answers, and its Service has no endpoint", noEndpoint: true, change: func(s *scope.Scope) {
			s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.Machines = []capacity.Machine{machine()}
		}},
		{
			reason: "the inference server answers, and its Service is refused", noService: true,
			err: errors.New("exceeded quota: services"), change: func(s *scope.Scope) {
				s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
				s.Machines = []capacity.Machine{machine()}
			},
		},
		{reason: "it serves, and a pass failed: it goes on serving", err: errors.New("the API server is away"), change: func(s *scope.Scope) {
			wasReady(s)
			s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.Machines = []capacity.Machine{machine()}
		}},
		{reason: "it serves the former spec, and the current one has no plan", change: func(s *scope.Scope) {
			s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.Machines = []capacity.Machine{machine()}
			s.PlanErr = &progress.StalledError{Reason: v1beta1.ReasonDoesNotFit, Message: "does not fit by 3 GiB"}
		}},
		{reason: "it served, and the machine is gone", change: func(s *scope.Scope) {
			wasReady(s)
			s.Revision = accepted(1)
		}},
		{reason: "it serves, and its pods are being replaced", change: func(s *scope.Scope) {
			s.Revision, s.StatefulSet, s.Pods, s.IsRolling = accepted(1), readySet(), []corev1.Pod{podReady()}, true
			s.Machines = []capacity.Machine{machine()}
		}},
		{
			reason: "it serves, and somebody took the Service's name",
			err:    &progress.StalledError{Reason: v1beta1.ReasonNameTaken, Message: "Service team-a/chat exists"}, change: func(s *scope.Scope) {
				wasReady(s)
				s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
				s.Machines = []capacity.Machine{machine()}
			},
		},
		{
			reason: "the machine was refused, and nothing else is left", err: exhausted, change: func(s *scope.Scope) {
				s.Revision = accepted(1)
				begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
				s.EndAttempt(refused(refusal.Quota), now.Time)
				s.CapacityErr = exhausted
			},
		},
		{reason: "the machine was refused, and another one is asked for", change: func(s *scope.Scope) {
			s.Revision = accepted(1)
			begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
			s.EndAttempt(refused(refusal.Quota), now.Time)
			s.Revision.Plan.InstanceType, s.FellBackFrom = "Standard_ND96asr_v4", "1 × Standard_NC24ads_A100_v4"
			begin(s, s.Revision, 2, []string{"chat-bbbb"}, now.Time)
			s.Created = []capacity.Created{{Name: "chat-bbbb", UID: "claim-2"}}
		}},
		{
			reason: "the request is misconfigured", err: mend, change: func(s *scope.Scope) {
				s.Revision = accepted(1)
				begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
				s.EndAttempt(refused(refusal.Misconfigured), now.Time)
				s.CapacityErr = mend
			},
		},
		{reason: "suspended, and a machine is still on its way out", change: func(s *scope.Scope) {
			s.Workspace.Suspend, s.Revision = true, accepted(1)
			s.Machines = []capacity.Machine{machine(func(m *capacity.Machine) { m.Deleting = true })}
		}},
		{reason: "suspended", change: func(s *scope.Scope) { s.Workspace.Suspend, s.Revision = true, accepted(1) }},
		{
			reason: "being deleted, machines left", err: &progress.WaitingError{Message: "waiting for 1 machine(s) to be gone"},
			change: func(s *scope.Scope) { s.Workspace.DeletionTimestamp = &now },
		},
		{reason: "an error before anything is known", err: fmt.Errorf("observe: %w", errors.New("the API server is away"))},
	}
	var out strings.Builder
	for _, test := range tests {
		s := scope.New(workspaceObject())
		if test.change != nil {
			test.change(s)
			s.Before = *s.Workspace.Status.DeepCopy()
		}
		s.IsPlanned, s.HasService = s.Revision != nil, s.StatefulSet != nil && !test.noService
		if s.HasService && !test.noEndpoint {
			s.Endpoints = []types.UID{podReady().UID}
		}
		status, events := s.Status(test.err, now)
		fmt.Fprintf(&out, "## %s\nstate %s, nodes %d %v\n", test.reason, status.State, status.TargetNodeCount, status.WorkerNodes)
		for _, c := range status.Conditions {
			fmt.Fprintf(&out, "  %-18s %-7s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
		fmt.Fprintf(&out, "  endpoint %v\n", status.Endpoint)
		for _, a := range status.Attempts {
			fmt.Fprintf(&out, "  attempt %d %s %s %s\n", a.Number, a.InstanceType, a.Reason, a.Message)
		}
		for _, stage := range status.Startup {
			fmt.Fprintf(&out, "  stage %s ended=%v\n", stage.Stage, stage.EndTime != nil)
		}
		for _, e := range events {
			fmt.Fprintf(&out, "  event warning=%v %s: %s\n", e.IsWarning, e.Reason, e.Message)
		}
		out.WriteString("\n")
	}
	golden(t, "status.golden", out.String())
}

// TestStatusIsStable: a repeated report changes nothing while nothing happens.
func TestStatusIsStable(t *testing.T) {
	s := scope.New(workspaceObject())
	s.Revision, s.StatefulSet, s.Pods = accepted(1), readySet(), []corev1.Pod{podReady()}
	s.Machines, s.HasService, s.Endpoints = []capacity.Machine{machine()}, true, []types.UID{podReady().UID}
	first, _ := s.Status(nil, now)
	s.Workspace.Status, s.Before = first, first
	second, events := s.Status(nil, metav1.NewTime(now.Add(time.Hour)))
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the second report differs (-first +second):\n%s", diff)
	}
	if len(events) > 0 {
		t.Errorf("nothing happened, and there are events: %+v", events)
	}
}

func TestAttempts(t *testing.T) {
	words := func(reason string) refusal.Condition {
		return refusal.Condition{Status: refusal.StatusUnknown, Reason: reason, Message: "m"}
	}
	held := machine(launching)
	held.UID = "claim-1"
	tests := []struct {
		reason string
		do     func(*scope.Scope)
		want   []string
	}{
		{reason: "none yet", do: func(*scope.Scope) {}},
		{reason: "one is begun", do: func(s *scope.Scope) { begin(s, s.Revision, 1, []string{"c"}, now.Time) }, want: []string{"1  [c] 0 claims"}},
		{
			reason: "it is refused",
			do: func(s *scope.Scope) {
				begin(s, s.Revision, 1, []string{"c"}, now.Time)
				noteCreated(s, []capacity.Created{{Name: "c", UID: "u"}}, now.Time)
				s.EndAttempt(refused(refusal.Quota), now.Time)
			},
			want: []string{"1 Quota [c] 0 claims sku/Standard_NC24ads_A100_v4/*/on-demand 1h0m0s generation 3"},
		},
		{
			reason: "what has ended does not end again",
			do: func(s *scope.Scope) {
				begin(s, s.Revision, 1, []string{"c"}, now.Time)
				letGo(s, "x", now.Time)
				s.EndAttempt(refused(refusal.Quota), now.Time)
			},
			want: []string{"1 Released [c] 0 claims generation 3"},
		},
		{
			reason: "the words about a launch are kept, each once, the newest four",
			do: func(s *scope.Scope) {
				begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
				for _, reason := range []string{"A", "B", "B", "AwaitingReconciliation", "C", "D", "E"} {
					held.Words.Launched = words(reason)
					s.Machines = []capacity.Machine{held}
					noteMachines(s, []string{"chat-aaaa"}, now.Time)
				}
			},
			want: []string{"1  [chat-aaaa] 1 claims claim-1 BCDE"},
		},
		{
			reason: "one whose machines serve is kept, however many were refused since",
			do: func(s *scope.Scope) {
				begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
				s.Surge.Serving = 1
				for i := range attemptLimit + 2 {
					begin(s, s.Revision, int32(i+2), nil, now.Time)
					letGo(s, "x", now.Time)
				}
				s.Attempts = slices.Delete(s.Attempts, 1, attemptLimit-1)
			},
			want: []string{"1  [chat-aaaa] 0 claims", "23 Released [] 0 claims generation 3"},
		},
		{
			reason: "the newest twenty are kept",
			do: func(s *scope.Scope) {
				for i := range attemptLimit + 2 {
					begin(s, s.Revision, int32(i+1), nil, now.Time)
					letGo(s, "x", now.Time)
				}
				s.Attempts = s.Attempts[attemptLimit-1:]
			},
			want: []string{"22 Released [] 0 claims generation 3"},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := scope.New(workspaceObject())
			s.Revision = accepted(1)
			test.do(s)
			var got []string
			for _, a := range s.Attempts {
				line := fmt.Sprintf("%d %s %v %d claims", a.Number, a.Reason, a.NodeClaims, len(a.Claims))
				for _, claim := range a.Claims {
					line += " " + claim.UID + " "
					for _, said := range claim.Heard {
						line += said.Reason
					}
				}
				if a.Cooldown != nil {
					line += " " + a.Scope + " " + a.Cooldown.Duration.String()
				}
				if a.EndTime != nil {
					line += fmt.Sprintf(" generation %d", a.Generation)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update after a look:\n%s", name, diff)
	}
}
