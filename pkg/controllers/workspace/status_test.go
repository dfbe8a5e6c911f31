// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/planner"
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

func accepted(nodes int) *revision {
	return &revision{
		Name: "chat-0123456789",
		Plan: planner.Plan{
			InstanceType: "Standard_NC24ads_A100_v4", Nodes: nodes, Accelerator: "A100-80", GPUResource: "nvidia.com/gpu",
			GPUsPerNode: 1, MachineGPUs: 1, CapacityType: v1beta1.CapacityOnDemand, HourlyPrice: 3.673, Engine: "llamacpp",
			Memory: &planner.Memory{Total: 79.15, Weights: 14.96, KVCache: 4, Overhead: 1.5, Basis: v1beta1.BasisEstimated},
		},
		ServedNames: []string{"some-model", "org/Some-Model"},
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
	pod.Name = "chat-0"
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

func readySet() *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{}
	set.Status.ReadyReplicas = 1
	return set
}

// TestStatus pins what users read in each situation, word by word.
func TestStatus(t *testing.T) {
	wasReady := func(s *scope) {
		s.ws.Status.State = v1beta1.StateReady
		s.ws.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonServing, LastTransitionTime: now},
			{Type: v1beta1.ConditionInferenceReady, Status: metav1.ConditionTrue, Reason: "x", LastTransitionTime: now},
		}
	}
	tests := []struct {
		reason string
		change func(*scope)
		err    error
	}{
		{
			reason: "no plan: the preset is unknown", err: &stalledError{reason: v1beta1.ReasonUnknownPreset, message: "no preset x"},
			change: func(s *scope) { s.planErr = &stalledError{reason: v1beta1.ReasonUnknownPreset, message: "no preset x"} },
		},
		{
			reason: "planned, and the name is taken", change: func(s *scope) { s.revision = accepted(1) },
			err: &stalledError{reason: v1beta1.ReasonNameTaken, message: "Service team-a/chat exists"},
		},
		{
			reason: "planned, and no provisioner", err: classify(&capacity.NotInstalledError{Missing: "Karpenter"}),
			change: func(s *scope) {
				s.revision = accepted(1)
				s.capacityErr = classify(&capacity.NotInstalledError{Missing: "Karpenter"})
			},
		},
		{reason: "the machine has been asked for", change: func(s *scope) {
			s.revision = accepted(1)
			s.attempt = &v1beta1.Attempt{Number: 1, InstanceType: "Standard_NC24ads_A100_v4", NodeClaims: []string{"chat-aaaa"}, StartTime: now}
		}},
		{reason: "the cloud refuses the machine", change: func(s *scope) {
			s.revision = accepted(1)
			s.machines = []capacity.Machine{machine(launching)}
		}},
		{reason: "one of two machines is there", change: func(s *scope) {
			s.revision = accepted(2)
			s.machines = []capacity.Machine{machine()}
		}},
		{reason: "the node is not Ready", change: func(s *scope) {
			s.revision = accepted(1)
			s.machines = []capacity.Machine{machine(notReady)}
		}},
		{reason: "the node shows no GPU", change: func(s *scope) {
			s.revision = accepted(1)
			s.machines = []capacity.Machine{machine(withoutGPUs)}
		}},
		{reason: "it serves", change: func(s *scope) {
			s.revision, s.statefulSet, s.pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.machines = []capacity.Machine{machine()}
		}},
		{reason: "it serves, and a pass failed: it goes on serving", err: errors.New("the API server is away"), change: func(s *scope) {
			wasReady(s)
			s.revision, s.statefulSet, s.pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.machines = []capacity.Machine{machine()}
		}},
		{reason: "it serves the former spec, and the current one has no plan", change: func(s *scope) {
			s.revision, s.statefulSet, s.pods = accepted(1), readySet(), []corev1.Pod{podReady()}
			s.machines = []capacity.Machine{machine()}
			s.planErr = &stalledError{reason: v1beta1.ReasonDoesNotFit, message: "does not fit by 3 GiB"}
		}},
		{reason: "it served, and the machine is gone", change: func(s *scope) {
			wasReady(s)
			s.revision = accepted(1)
		}},
		{reason: "it serves, and its pods are being replaced", change: func(s *scope) {
			s.revision, s.statefulSet, s.pods, s.rolling = accepted(1), readySet(), []corev1.Pod{podReady()}, true
			s.machines = []capacity.Machine{machine()}
		}},
		{
			reason: "it serves, and somebody took the Service's name",
			err:    &stalledError{reason: v1beta1.ReasonNameTaken, message: "Service team-a/chat exists"}, change: func(s *scope) {
				wasReady(s)
				s.revision, s.statefulSet, s.pods = accepted(1), readySet(), []corev1.Pod{podReady()}
				s.machines = []capacity.Machine{machine()}
			},
		},
		{
			reason: "the machine disappeared, and is asked for again later",
			err:    &waitingError{message: "chat-aaaa disappeared; asked for again from 12:00:10 UTC"}, change: func(s *scope) {
				s.revision, s.lost = accepted(1), true
				s.ws.Status.Attempts = []v1beta1.Attempt{{Number: 1, InstanceType: "A", NodeClaims: []string{"chat-aaaa"}}}
				s.capacityErr = &waitingError{message: "chat-aaaa disappeared; asked for again from 12:00:10 UTC"}
			},
		},
		{reason: "suspended, and a machine is still on its way out", change: func(s *scope) {
			s.ws.Suspend, s.revision = true, accepted(1)
			s.machines = []capacity.Machine{machine(func(m *capacity.Machine) { m.Deleting = true })}
		}},
		{reason: "suspended", change: func(s *scope) { s.ws.Suspend, s.revision = true, accepted(1) }},
		{
			reason: "being deleted, machines left", err: &waitingError{message: "waiting for 1 machine(s) to be gone"},
			change: func(s *scope) { s.ws.DeletionTimestamp = &now },
		},
		{reason: "an error before anything is known", err: fmt.Errorf("observe: %w", errors.New("the API server is away"))},
	}
	var out strings.Builder
	for _, test := range tests {
		s := newScope(workspaceObject())
		if test.change != nil {
			test.change(s)
		}
		status, events := s.status(test.err, now)
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
			fmt.Fprintf(&out, "  event warning=%v %s: %s\n", e.warning, e.reason, e.message)
		}
		out.WriteString("\n")
	}
	golden(t, "status.golden", out.String())
}

// TestStatusIsStable says that nothing changes while nothing happens, however often it is reported.
func TestStatusIsStable(t *testing.T) {
	s := newScope(workspaceObject())
	s.revision, s.statefulSet, s.pods = accepted(1), readySet(), []corev1.Pod{podReady()}
	s.machines = []capacity.Machine{machine()}
	first, _ := s.status(nil, now)
	s.ws.Status = first
	second, events := s.status(nil, metav1.NewTime(now.Add(time.Hour)))
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("the second report differs (-first +second):\n%s", diff)
	}
	if len(events) > 0 {
		t.Errorf("nothing happened, and there are events: %+v", events)
	}
}

func TestAttempts(t *testing.T) {
	attempt := func(number int32, reason string) v1beta1.Attempt {
		return v1beta1.Attempt{Number: number, InstanceType: "A", NodeClaims: []string{"c"}, StartTime: now, Reason: reason}
	}
	many := make([]v1beta1.Attempt, 0, attemptLimit)
	for i := range attemptLimit {
		many = append(many, attempt(int32(i+1), reasonVanished))
	}
	fresh := attempt(2, "")
	more := attempt(2, "")
	more.NodeClaims = []string{"d"}
	tests := []struct {
		reason   string
		before   []v1beta1.Attempt
		begun    *v1beta1.Attempt
		released string
		lost     bool
		revision *revision
		machines []capacity.Machine
		want     []string
	}{
		{reason: "none yet"},
		{reason: "the first one", begun: &v1beta1.Attempt{Number: 1, InstanceType: "A"}, want: []string{"1 A  []"}},
		{reason: "nothing happened", before: []v1beta1.Attempt{attempt(1, "")}, want: []string{"1 A  [c]"}},
		{reason: "the machines vanished", before: []v1beta1.Attempt{attempt(1, "")}, lost: true, want: []string{"1 A Vanished [c]"}},
		{
			reason: "others were asked for", before: []v1beta1.Attempt{attempt(1, "")}, lost: true, begun: &fresh,
			want: []string{"1 A Vanished [c]", "2 A  [c]"},
		},
		{reason: "another plan", before: []v1beta1.Attempt{attempt(1, "")}, released: "x", want: []string{"1 A Released [c]"}},
		{
			reason: "one more machine for the same attempt", before: []v1beta1.Attempt{attempt(2, "")}, begun: &more,
			want: []string{"2 A  [c d]"},
		},
		{
			reason: "the status that named the machines was lost", revision: accepted(1), machines: []capacity.Machine{machine()},
			want: []string{"1 Standard_NC24ads_A100_v4  [chat-aaaa]"},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := newScope(workspaceObject())
			s.ws.Status.Attempts, s.attempt, s.released, s.lost = test.before, test.begun, test.released, test.lost
			s.revision, s.machines = test.revision, test.machines
			var got []string
			for _, a := range s.attempts() {
				got = append(got, fmt.Sprintf("%d %s %s %v", a.Number, a.InstanceType, a.Reason, a.NodeClaims))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	s := newScope(workspaceObject())
	s.ws.Status.Attempts = many
	s.attempt = &v1beta1.Attempt{Number: attemptLimit + 1}
	if got := s.attempts(); len(got) != attemptLimit || got[attemptLimit-1].Number != attemptLimit+1 {
		t.Errorf("%d attempts, the last one number %d; want %d, the newest kept", len(got), got[len(got)-1].Number, attemptLimit)
	}
}

func TestRetryDelay(t *testing.T) {
	var attempts []v1beta1.Attempt
	var got []time.Duration
	for range 8 {
		attempts = append(attempts, v1beta1.Attempt{Reason: reasonVanished})
		got = append(got, retryDelay(attempts))
	}
	s := time.Second
	want := []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s, 300 * s}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	released := []v1beta1.Attempt{{Reason: reasonVanished}, {Reason: reasonReleased}}
	if got := retryDelay(released); got != firstRetry {
		t.Errorf("after a release by us: %s, want %s", got, firstRetry)
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
