// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/group"
)

func TestIsProgress(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	status := func(change func(*v1beta1.WorkspaceStatus)) *v1beta1.WorkspaceStatus {
		out := &v1beta1.WorkspaceStatus{
			State: v1beta1.StatePending,
			Conditions: []metav1.Condition{
				condition(v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "NodeClaimNotReady", "being launched"),
				condition(v1beta1.ConditionResourceReady, metav1.ConditionFalse, "NodeClaimNotReady", "being launched"),
				condition(v1beta1.ConditionInferenceReady, metav1.ConditionFalse, "WorkspaceInferenceStatusPending", "waits"),
			},
			Attempts: []v1beta1.Attempt{{Number: 1, Claims: []v1beta1.AttemptClaim{{Name: "a", UID: "u"}}}},
		}
		if change != nil {
			change(out)
		}
		return out
	}
	for _, tc := range []struct {
		reason string
		change func(*v1beta1.WorkspaceStatus)
		want   bool
	}{
		{"a message", func(s *v1beta1.WorkspaceStatus) { s.Conditions[2].Message = "pulls" }, true},
		{"the stage that the provisioner is at", func(s *v1beta1.WorkspaceStatus) { s.Conditions[0].Reason = "NodeNotFound" }, true},
		{"the same in a sum", func(s *v1beta1.WorkspaceStatus) { s.Conditions[1].Reason = "NodeNotFound" }, true},
		{"a part of a sum that does not hold yet", func(s *v1beta1.WorkspaceStatus) { s.Conditions[0].Status = metav1.ConditionTrue }, true},
		{"the stage of a machine", func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].Claims[0].Stage = "Launched" }, true},
		{"a stage of the start", func(s *v1beta1.WorkspaceStatus) { s.Startup = []v1beta1.StartupStage{{Stage: "Planned"}} }, true},
		{"a node's name", func(s *v1beta1.WorkspaceStatus) { s.WorkerNodes = []string{"n"} }, true},
		{"pods that are ready before their machines", func(s *v1beta1.WorkspaceStatus) {
			s.Conditions[2].Status, s.Conditions[2].Reason = metav1.ConditionTrue, v1beta1.ReasonInferenceSuccess
		}, true},
		{"an endpoint that does not answer", func(s *v1beta1.WorkspaceStatus) { s.Endpoint = &v1beta1.Endpoint{} }, true},
		{"a model that answers", func(s *v1beta1.WorkspaceStatus) {
			s.Conditions[2].Status, s.Conditions[2].Reason = metav1.ConditionTrue, v1beta1.ReasonInferenceSuccess
			s.Conditions = append(s.Conditions, condition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing, "answers"))
		}, false},
		{"a sum holds", func(s *v1beta1.WorkspaceStatus) { s.Conditions[1].Status = metav1.ConditionTrue }, false},
		{"something is wrong", func(s *v1beta1.WorkspaceStatus) { s.Conditions[2].Reason = "ImagePullError" }, false},
		{"a condition more", func(s *v1beta1.WorkspaceStatus) {
			s.Conditions = append(s.Conditions, condition(v1beta1.ConditionStalled, metav1.ConditionTrue, "Misconfigured", "m"))
		}, false},
		{"words about a launch", func(s *v1beta1.WorkspaceStatus) {
			s.Attempts[0].Claims[0].Heard = []v1beta1.AttemptWords{{Reason: "LaunchFailed"}}
		}, false},
		{"another machine", func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].Claims[0].UID = "v" }, false},
		{"the end of an attempt", func(s *v1beta1.WorkspaceStatus) { s.Attempts[0].Reason = "Quota" }, false},
		{"the state", func(s *v1beta1.WorkspaceStatus) { s.State = v1beta1.StateReady }, false},
		{"the plan", func(s *v1beta1.WorkspaceStatus) { s.Plan = &v1beta1.PlanStatus{} }, false},
		{"the spec that it is about", func(s *v1beta1.WorkspaceStatus) { s.Conditions[0].ObservedGeneration = 2 }, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := isProgress(status(nil), status(tc.change), false); got != tc.want {
				t.Errorf("mere progress: %v, want %v", got, tc.want)
			}
		})
	}
	machines := func(s *v1beta1.WorkspaceStatus) {
		s.Conditions[1].Status, s.Conditions[1].Reason = metav1.ConditionTrue, v1beta1.ReasonResourceSuccess
		s.Conditions[1].LastTransitionTime, s.Attempts[0].ReadyTime = now, &now
	}
	serving := condition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing, "answers")
	for _, tc := range []struct {
		reason        string
		before, after func(*v1beta1.WorkspaceStatus)
		isCrowded     bool
		want          bool
	}{
		{"machines have come", nil, machines, false, false},
		{"machines of one of many have come", nil, machines, true, true},
		{"machines of one of many are gone", machines, nil, true, false},
		{"one of many has an attempt more", nil, func(s *v1beta1.WorkspaceStatus) {
			machines(s)
			s.Attempts = append(s.Attempts, v1beta1.Attempt{Number: 2})
		}, true, false},
		{"one of many answers", nil, func(s *v1beta1.WorkspaceStatus) {
			machines(s)
			s.Conditions = append(s.Conditions, serving)
		}, true, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := isProgress(status(tc.before), status(tc.after), tc.isCrowded); got != tc.want {
				t.Errorf("mere progress: %v, want %v", got, tc.want)
			}
		})
	}
}

// TestEventsDoNotWait has a group replaced that failed before: the condition says so already, in other words.
func TestEventsDoNotWait(t *testing.T) {
	ws := workspaceObject()
	r, heard := teller(t, ws, func() error { return nil })
	pass := func(step group.Step) []string {
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			t.Fatal(err)
		}
		s := newScope(ws)
		s.revision, s.statefulSet, s.planned, s.groupStep = accepted(2), readySet(), true, step
		s.revision.Worker = &corev1.PodTemplateSpec{}
		if err := r.report(t.Context(), s, nil); err != nil {
			t.Fatal(err)
		}
		return heard().Events
	}
	pass(group.Step{Do: group.Wait, Failure: "member chat-0 ended", Until: now.Time})
	if events := pass(group.Step{Do: group.Replace, Failure: "member chat-0 ended"}); len(events) != 1 {
		t.Errorf("events %q, want that the group is replaced", events)
	}
}

// Where many come up together, machines that have come are told of with the answer, in one write; of one they are at once.
func TestMachinesOfManyWaitForTheAnswer(t *testing.T) {
	for _, test := range []struct {
		reason string
		others int
		want   []int
	}{
		{"nobody else comes up", 0, []int{1, 1, 1}},
		{"many do", progressBurst + 1, []int{1, 0, 2}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			r, heard := teller(t, ws, func() error { return nil })
			pass := func(machine capacity.Machine, pods ...corev1.Pod) int {
				if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
					t.Fatal(err)
				}
				s := newScope(ws)
				s.revision, s.statefulSet, s.planned, s.named = accepted(1), readySet(), true, true
				s.machines, s.pods = []capacity.Machine{machine}, pods
				if err := r.report(t.Context(), s, nil); err != nil {
					t.Fatal(err)
				}
				return len(heard().Events)
			}
			for j := range test.others {
				r.unsaid.hold(types.UID(strconv.Itoa(j)), true, now.Time)
			}
			coming := machine(func(m *capacity.Machine) { m.Initialized = false })
			got := []int{pass(coming), pass(machine()), pass(machine(), podReady())}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("events of each pass (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnsaidWaitsOnce(t *testing.T) {
	u, start := newUnsaid(), now.Time
	for _, step := range []struct {
		reason     string
		at         time.Duration
		isProgress bool
		want       time.Duration
	}{
		{"the first news waits", 0, true, progressDelay},
		{"more news does not make it wait longer", 4 * time.Second, true, progressDelay - 4*time.Second},
		{"until its time has come", progressDelay, true, 0},
		{"later news waits again", progressDelay + time.Second, true, progressDelay},
		{"what is no mere progress takes it along", progressDelay + 2*time.Second, false, 0},
		{"so that the next news waits from its own time", 2 * progressDelay, true, progressDelay},
	} {
		if got := u.hold("uid", step.isProgress, start.Add(step.at)); got != step.want {
			t.Errorf("%s: waits %s, want %s", step.reason, got, step.want)
		}
	}
	if got := u.hold("other", true, start); got != progressDelay {
		t.Errorf("another Workspace waits %s, want %s of its own", got, progressDelay)
	}
}

// TestUnsaidOfMany has the news of many be written a few at a time, and that of one as soon as ever.
func TestUnsaidOfMany(t *testing.T) {
	for _, test := range []struct {
		reason string
		others int
		after  time.Duration
		want   time.Duration
	}{
		{"nobody else has any", 0, 0, progressDelay},
		{"a few others have", progressBurst, 0, progressDelay},
		{"one more", progressBurst + 1, 0, progressDelay + time.Second/progressRate},
		{"some more", progressBurst + 4*progressRate, 0, progressDelay + 4*time.Second},
		{"very many", 1000, 0, progressLimit},
		{"a little later, when all of theirs is said", 1000, progressLimit, progressDelay},
	} {
		t.Run(test.reason, func(t *testing.T) {
			u := newUnsaid()
			for _, at := range []time.Duration{0, test.after} {
				for j := range test.others {
					u.hold(types.UID(strconv.Itoa(j)), true, now.Add(at))
				}
			}
			if got := u.hold("the last", true, now.Add(test.after)); got != test.want {
				t.Errorf("waits %s, want %s", got, test.want)
			}
		})
	}
}

// TestUnsaidForgetsWhatNobodyIsToTell has Workspaces vanish that news was kept of.
func TestUnsaidForgetsWhatNobodyIsToTell(t *testing.T) {
	u := newUnsaid()
	for j := range progressBurst + 1 {
		u.hold(types.UID(strconv.Itoa(j)), true, now.Time)
	}
	for _, test := range []struct {
		reason string
		after  time.Duration
		want   bool
	}{
		{"it waits", 0, true},
		{"it is late, as where passes are", progressLimit, true},
		{"no pass came for it", 2*progressLimit + time.Second, false},
	} {
		if got := u.isCrowded(now.Add(test.after)); got != test.want {
			t.Errorf("%s: many wait: %v, want %v", test.reason, got, test.want)
		}
	}
	u.isCrowded(now.Add(2 * progressForgotten))
	if len(u.due) > 0 {
		t.Errorf("news of %d is kept for ever", len(u.due))
	}
	late := newUnsaid()
	late.hold("uid", true, now.Time)
	late.isCrowded(now.Add(progressForgotten))
	if got := late.hold("uid", true, now.Add(progressForgotten)); got != 0 {
		t.Errorf("news that is late waits %s more", got)
	}
}

// TestFirstMachinesAreToldAfterThoseWhoWait says when it is written down that a Workspace has asked for its first machines:
// at once, unless others wait for a pass, and then by its own next one, with all that there was to tell.
func TestFirstMachinesAreToldAfterThoseWhoWait(t *testing.T) {
	for _, test := range []struct {
		reason  string
		isBusy  bool
		isOld   bool
		nodes   int
		err     error
		isLater bool
	}{
		{reason: "nobody waits"},
		{reason: "others wait", isBusy: true, isLater: true},
		{reason: "others wait, but something is wrong", isBusy: true, err: errors.New("no")},
		{reason: "others wait, but the first machine of a group decides where the others are asked for", isBusy: true, nodes: 2},
		{reason: "others wait, but it is no new Workspace", isBusy: true, isOld: true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Status = v1beta1.WorkspaceStatus{}
			nodes := max(test.nodes, 1)
			events := []string{
				fmt.Sprintf("Normal PlanAccepted %d × Standard_NC24ads_A100_v4 (1 × A100-80), $3.67/h", nodes),
				"Normal NodeClaimCreated asked for Standard_NC24ads_A100_v4: [chat-aaaa]",
			}
			r, heard := teller(t, ws, func() error { return nil })
			waiting := queueOf(t, r)
			if test.isBusy {
				waiting.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "other"}})
			}
			pass := func() *scope {
				read := &v1beta1.Workspace{}
				if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(ws), read); err != nil {
					t.Fatal(err)
				}
				s := newScope(read)
				r.unsaid.recall(s)
				s.revision = accepted(nodes)
				return s
			}
			s := pass()
			s.isNew, s.created = !test.isOld, []capacity.Created{{Name: "chat-aaaa", UID: "some"}}
			s.begin(s.revision, 1, []string{"chat-aaaa"}, now.Time)
			s.noteCreated(s.created, now.Time)
			begun := cloneAttempts(s.attempts)
			if err := r.report(t.Context(), s, test.err); err != nil {
				t.Fatal(err)
			}
			told := heard().Events
			if isLater := len(told) == 0; isLater != test.isLater || isLater != (s.requeueAfter == shortestLook) {
				t.Errorf("the pass told %q and looks again after %s", told, s.requeueAfter)
			}

			s = pass()
			if diff := cmp.Diff(begun, s.attempts); diff != "" {
				t.Errorf("the next pass knows (-want +got):\n%s", diff)
			}
			if err := r.report(t.Context(), s, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(events, append(told, heard().Events...)); diff != "" {
				t.Errorf("told in the end (-want +got):\n%s", diff)
			}
			s = pass()
			if diff := cmp.Diff(begun, s.ws.Status.Attempts); diff != "" {
				t.Errorf("written down (-want +got):\n%s", diff)
			}
			if len(s.untold) > 0 {
				t.Errorf("%v are told twice", s.untold)
			}
		})
	}
}
