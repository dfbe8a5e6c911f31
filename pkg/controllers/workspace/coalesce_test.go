// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/group"
)

// TestProgressIsCoalesced reports one pass after another, and checks which of them write the status.
func TestProgressIsCoalesced(t *testing.T) {
	coming := machine(launching, func(m *capacity.Machine) { m.Reason, m.Message = "", "" })
	launched := machine(launching, func(m *capacity.Machine) { m.Reason, m.Message, m.Launched = "", "", true })
	registered := machine(launching, func(m *capacity.Machine) { m.Reason, m.Message, m.Launched, m.Registered = "", "", true, true })
	ws := workspaceObject()
	r, _ := teller(t, ws, func() error { return nil })
	clock, isFake := r.Clock.(*testclock.FakePassiveClock)
	if !isFake {
		t.Fatalf("the clock is a %T", r.Clock)
	}
	for _, step := range []struct {
		reason  string
		after   time.Duration
		machine capacity.Machine
		pods    []corev1.Pod
		err     error
		// noEndpoint: the Service has no endpoint yet.
		noEndpoint bool
		writes     bool
		looksIn    time.Duration
	}{
		{reason: "the first status", machine: coming, writes: true},
		{reason: "progress a moment later waits", after: time.Second, machine: launched, looksIn: progressPeriod - time.Second},
		{reason: "more progress waits no longer", after: 4 * time.Second, machine: registered, looksIn: progressPeriod - 4*time.Second},
		{reason: "its time has come", after: progressPeriod, machine: registered, writes: true},
		{reason: "nothing changed", after: progressPeriod + time.Second, machine: registered},
		{reason: "an error never waits", after: progressPeriod + 2*time.Second, machine: registered, err: errors.New("no"), writes: true},
		{reason: "progress waits for more, long after a write", after: time.Minute, machine: launched, looksIn: progressDelay},
		{reason: "it has waited long enough", after: time.Minute + progressDelay, machine: launched, writes: true},
		{
			reason: "an engine that answers first waits for its machine", after: 90 * time.Second, machine: launched,
			pods: []corev1.Pod{podReady()}, looksIn: progressDelay,
		},
		{
			reason: "but not for long", after: 90*time.Second + progressDelay, machine: launched,
			pods: []corev1.Pod{podReady()}, writes: true,
		},
		{reason: "it answers no more", after: 100 * time.Second, machine: launched, writes: true},
		{reason: "the next progress waits again", after: 2 * time.Minute, machine: registered, looksIn: progressDelay},
		{reason: "a machine that is usable never waits", after: 2*time.Minute + time.Second, machine: machine(), writes: true},
		{reason: "a write has all progress before it", after: 3 * time.Minute, machine: machine()},
		{
			reason: "a model that answers never waits", after: 3*time.Minute + time.Second, machine: machine(),
			pods: []corev1.Pod{podReady()}, writes: true,
		},
		{
			reason: "an endpoint of a Ready model that is gone for a moment changes nothing", after: 3*time.Minute + 2*time.Second,
			machine: machine(), pods: []corev1.Pod{podReady()}, noEndpoint: true,
		},
		{reason: "the model answers no more", after: 4 * time.Minute, machine: machine(), writes: true},
		{
			reason: "a model that answers waits for the endpoint of its Service", after: 5 * time.Minute, machine: machine(),
			pods: []corev1.Pod{podReady()}, noEndpoint: true, looksIn: progressDelay,
		},
		{
			reason: "one write says that it answers, and that it is Ready", after: 5*time.Minute + time.Second, machine: machine(),
			pods: []corev1.Pod{podReady()}, writes: true,
		},
		{reason: "the model answers no more, again", after: 6 * time.Minute, machine: machine(), writes: true},
		{
			reason: "an endpoint may be late", after: 7 * time.Minute, machine: machine(),
			pods: []corev1.Pod{podReady()}, noEndpoint: true, looksIn: progressDelay,
		},
		{
			reason: "then the status says what is missing", after: 7*time.Minute + progressDelay, machine: machine(),
			pods: []corev1.Pod{podReady()}, noEndpoint: true, writes: true,
		},
		{
			reason: "nothing more until it comes", after: 8 * time.Minute, machine: machine(),
			pods: []corev1.Pod{podReady()}, noEndpoint: true,
		},
		{reason: "it comes", after: 9 * time.Minute, machine: machine(), pods: []corev1.Pod{podReady()}, writes: true},
	} {
		clock.SetTime(now.Add(step.after))
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			t.Fatal(err)
		}
		s := scope.New(ws.DeepCopy())
		s.Revision, s.StatefulSet, s.IsPlanned, s.HasService = accepted(1), readySet(), true, true
		s.Machines, s.Pods = []capacity.Machine{step.machine}, step.pods
		if !step.noEndpoint {
			s.Endpoints = []types.UID{podReady().UID}
		}
		if err := r.report(t.Context(), s, step.err); err != nil {
			t.Fatal(err)
		}
		if writes := s.Workspace.ResourceVersion != ws.ResourceVersion; writes != step.writes || s.RequeueAfter != step.looksIn {
			t.Errorf("%s: written %v and looks again in %s; want %v and %s", step.reason, writes, s.RequeueAfter, step.writes, step.looksIn)
		}
	}
}

// TestProgressAfterARestart: progress waits only for more progress if the last write is unknown.
func TestProgressAfterARestart(t *testing.T) {
	clock := testclock.NewFakePassiveClock(now.Time)
	coalescer := newCoalescer(clock)
	for _, want := range []time.Duration{progressDelay, progressDelay - time.Second, progressDelay - 2*time.Second, 0, 0} {
		if wait := coalescer.wait("uid-1"); wait != want {
			t.Errorf("%s after the start, progress waits %s, want %s", clock.Since(now.Time), wait, want)
		}
		clock.SetTime(clock.Now().Add(time.Second))
	}
}

// TestAnAnswerHasItsOwnTime: earlier progress does not shorten the time for which an engine that answers waits for its
// endpoint.
func TestAnAnswerHasItsOwnTime(t *testing.T) {
	clock := testclock.NewFakePassiveClock(now.Time)
	coalescer := newCoalescer(clock)
	coalescer.wrote("uid-1")
	coalescer.wait("uid-1")
	for _, step := range []struct {
		reason string
		after  time.Duration
		want   time.Duration
	}{
		{"a progress has waited for 8 s", 8 * time.Second, progressDelay},
		{"a second later", 9 * time.Second, progressDelay - time.Second},
		{"a minute later", time.Minute, 0},
	} {
		clock.SetTime(now.Add(step.after))
		if wait := coalescer.waitForReady("uid-1"); wait != step.want {
			t.Errorf("%s: the answer waits %s, want %s", step.reason, wait, step.want)
		}
	}
	coalescer.wrote("uid-1")
	if wait := coalescer.waitForReady("uid-1"); wait != progressDelay {
		t.Errorf("the next answer waits %s, want %s", wait, progressDelay)
	}
}

// TestManyStartsShareABudget: progress of many Workspaces is written at progressRate, and a write with more than
// progress gives its turn back.
func TestManyStartsShareABudget(t *testing.T) {
	clock := testclock.NewFakePassiveClock(now.Time)
	coalescer := newCoalescer(clock)
	uid := func(n int) types.UID { return types.UID(strconv.Itoa(n)) }
	const turn = time.Second / progressRate
	for n := range progressBurst {
		if wait := coalescer.takeTurn(uid(n)); wait != 0 {
			t.Errorf("Workspace %d of a burst of %d waits %s", n+1, progressBurst, wait)
		}
	}
	first, second, third := uid(progressBurst), uid(progressBurst+1), uid(progressBurst+2)
	for _, want := range []struct {
		reason string
		uid    types.UID
		wait   time.Duration
	}{
		{"the burst is used up", first, turn},
		{"one turn later", second, 2 * turn},
		{"another pass takes no second turn", first, turn},
	} {
		if wait := coalescer.takeTurn(want.uid); wait != want.wait {
			t.Errorf("%s: waits %s, want %s", want.reason, wait, want.wait)
		}
	}
	coalescer.wrote(second) // it is Ready
	if wait := coalescer.takeTurn(third); wait != 2*turn {
		t.Errorf("the turn of a Workspace with other news is free: waits %s, want %s", wait, 2*turn)
	}
	clock.SetTime(now.Add(turn))
	if wait := coalescer.takeTurn(first); wait != 0 {
		t.Errorf("its turn has come, but it waits %s", wait)
	}
}

// TestUsableMachinesWaitForOthers: usable machines of one Workspace are reported at once, but in turn after a burst. An
// answering model never waits.
func TestUsableMachinesWaitForOthers(t *testing.T) {
	clock := testclock.NewFakePassiveClock(now.Time)
	coalescer := newCoalescer(clock)
	before, usable, serving := &v1beta1.WorkspaceStatus{}, &v1beta1.WorkspaceStatus{}, &v1beta1.WorkspaceStatus{}
	for kind, statuses := range map[string][]*v1beta1.WorkspaceStatus{
		v1beta1.ConditionResourceReady: {usable, serving}, v1beta1.ConditionReady: {serving},
	} {
		for _, to := range statuses {
			meta.SetStatusCondition(&to.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Holds"})
		}
	}
	if wait := coalescer.waitFor("uid-1", before, usable, 1); wait != 0 {
		t.Errorf("usable machines of one Workspace wait %s", wait)
	}
	for coalescer.takeTurn(uuid.NewUUID()) == 0 {
	}
	if wait := coalescer.waitFor("uid-2", before, usable, 1); wait <= 0 {
		t.Error("usable machines behind a burst are written at once")
	}
	if wait := coalescer.waitFor("uid-2", before, usable, 2); wait != 0 {
		t.Errorf("usable machines with an event of their own wait %s", wait)
	}
	if wait := coalescer.waitFor("uid-2", before, serving, 1); wait != 0 {
		t.Errorf("an answering model waits %s", wait)
	}
}

// TestEventsDoNotWait replaces a group whose failure the condition already shows: the event must not wait.
func TestEventsDoNotWait(t *testing.T) {
	ws := workspaceObject()
	r, heard := teller(t, ws, func() error { return nil })
	pass := func(step group.Step) []string {
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			t.Fatal(err)
		}
		s := scope.New(ws)
		s.Revision, s.StatefulSet, s.IsPlanned, s.GroupStep = accepted(2), readySet(), true, step
		s.Revision.Worker = &corev1.PodTemplateSpec{}
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
