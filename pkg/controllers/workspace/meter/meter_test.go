// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter/metertest"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
)

var now = metav1.NewTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))

func workspaceObject() *v1beta1.Workspace {
	return &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "some"}}
}

// account holds the costs of all machines.
type account []capacity.MachineCost

func (a account) MachineCosts(context.Context) ([]capacity.MachineCost, error) { return a, nil }

// ofMoney returns the prefixes of the metrics about machines and their cost.
func ofMoney() []string { return []string{"modelberth_capacity_", "modelberth_spending_"} }

// TestMetrics: each transition of an attempt counts once, even if a second set of metrics replaces the first.
func TestMetrics(t *testing.T) {
	registry, memory := prometheus.NewRegistry(), &cooldown.Memory{}
	clock := testclock.NewFakePassiveClock(now.Time)
	var m *Metrics
	for range 2 {
		var err error
		if m, err = New(registry, memory, clock); err != nil {
			t.Fatal(err)
		}
	}
	memory.Learn(now.Time, refusal.Attempt{
		Offering: refusal.Offering{InstanceType: "A"}, Started: now.Time, Ended: now.Time, Cause: refusal.Quota,
		Scope: refusal.Scope{Breadth: refusal.SKU, Name: "A", Zone: refusal.Any}, Cooldown: time.Hour,
	})
	ready := metav1.NewTime(now.Add(90 * time.Second))
	asked := v1beta1.Attempt{Number: 2, InstanceType: "B", StartTime: now}
	got := asked
	got.ReadyTime = &ready
	lost := got
	lost.Reason = v1beta1.ReasonLost
	refusedFirst := v1beta1.Attempt{Number: 1, InstanceType: "A", StartTime: now, Reason: v1beta1.ReasonQuota}
	steps := [][]v1beta1.Attempt{
		nil,
		{{Number: 1, InstanceType: "A", StartTime: now}},
		{refusedFirst, asked},
		{refusedFirst, got},
		{refusedFirst, got},
		{refusedFirst, lost},
		{refusedFirst, lost},
	}
	for i := 1; i < len(steps); i++ {
		m.Count(steps[i-1], steps[i])
	}
	want := []string{
		"modelberth_capacity_attempts_total A Quota 1",
		"modelberth_capacity_attempts_total B Lost 1",
		"modelberth_capacity_attempts_total B Ready 1",
		"modelberth_capacity_cooldowns_active 1",
		"modelberth_capacity_seconds 1 90s",
		"modelberth_spending_wasted_usd_total 0",
	}
	if diff := cmp.Diff(want, metertest.Lines(t, registry, ofMoney()...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStartupMetrics: each stage counts once, at its end, and a whole start at the end of its last stage.
func TestStartupMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := New(registry, &cooldown.Memory{}, testclock.NewFakePassiveClock(now.Time))
	if err != nil {
		t.Fatal(err)
	}
	at := func(seconds int) *metav1.Time {
		out := metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
		return &out
	}
	planned := v1beta1.StartupStage{Stage: v1beta1.StagePlanned, StartTime: now, EndTime: at(2)}
	machine := v1beta1.StartupStage{Stage: v1beta1.StageMachine, StartTime: *at(2)}
	usable := machine
	usable.EndTime = at(200)
	first := v1beta1.StartupStage{Stage: v1beta1.StageReady, StartTime: *at(200), EndTime: at(203)}
	steps := [][]v1beta1.StartupStage{
		nil, {planned, machine}, {planned, machine}, {planned, usable}, {planned, usable, first}, {planned, usable, first},
	}
	for i := 1; i < len(steps); i++ {
		m.Started(steps[i-1], steps[i])
	}
	want := []string{
		"modelberth_startup_seconds 1 203s",
		"modelberth_startup_stage_seconds Engine 0 0s", "modelberth_startup_stage_seconds Image 0 0s",
		"modelberth_startup_stage_seconds Machine 1 198s", "modelberth_startup_stage_seconds Planned 1 2s",
		"modelberth_startup_stage_seconds Ready 1 3s", "modelberth_startup_stage_seconds Weights 0 0s",
	}
	if diff := cmp.Diff(want, metertest.Lines(t, registry, "modelberth_startup_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPopulation counts Workspaces, but only in the leader.
func TestPopulation(t *testing.T) {
	of := func(name string, change func(*v1beta1.Workspace)) *v1beta1.Workspace {
		ws := workspaceObject()
		ws.Name, ws.UID, ws.Status = name, types.UID(name), v1beta1.WorkspaceStatus{}
		change(ws)
		return ws
	}
	with := func(ws *v1beta1.Workspace, kind, reason string) {
		ws.Status.Conditions = append(ws.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason})
	}
	all := []client.Object{
		of("new", func(*v1beta1.Workspace) {}),
		of("serves", func(ws *v1beta1.Workspace) {
			with(ws, v1beta1.ConditionInferenceReady, "R")
			ws.Status.Plan = &v1beta1.PlanStatus{InstanceType: "A", Engine: "vllm"}
		}),
		of("serves-on", func(ws *v1beta1.Workspace) {
			with(ws, v1beta1.ConditionInferenceReady, "R")
			with(ws, v1beta1.ConditionStalled, v1beta1.ReasonDoesNotFit)
			ws.Status.Plan = &v1beta1.PlanStatus{InstanceType: "A", Engine: "vllm"}
		}),
		of("stuck", func(ws *v1beta1.Workspace) { with(ws, v1beta1.ConditionStalled, v1beta1.ReasonQuota) }),
		of("broken", func(ws *v1beta1.Workspace) { ws.Status.State = v1beta1.StateNotReady }),
		of("broken-and-stuck", func(ws *v1beta1.Workspace) {
			with(ws, v1beta1.ConditionStalled, v1beta1.ReasonCannotServe)
			ws.Status.State = v1beta1.StateNotReady
		}),
		of("unreachable", func(ws *v1beta1.Workspace) {
			with(ws, v1beta1.ConditionInferenceReady, "R")
			ws.Status.State = v1beta1.StateNotReady
			ws.Status.Conditions = append(ws.Status.Conditions, metav1.Condition{
				Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonNoEndpoint,
			})
		}),
		of("broken-and-asleep", func(ws *v1beta1.Workspace) { ws.Suspend, ws.Status.State = true, v1beta1.StateNotReady }),
		of("asleep", func(ws *v1beta1.Workspace) { ws.Suspend = true }),
		of("going", func(ws *v1beta1.Workspace) {
			ws.DeletionTimestamp, ws.Finalizers = &now, []string{"example.com/x"}
		}),
	}
	known := runtime.NewScheme()
	if err := v1beta1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	kube := fake.NewClientBuilder().WithScheme(known).WithObjects(all...).Build()
	registry, leads := prometheus.NewRegistry(), make(chan struct{})
	if err := RegisterPopulation(registry, kube, leads); err != nil {
		t.Fatal(err)
	}
	prefixes := []string{"modelberth_workspaces", "kaito_"}
	if got := metertest.Lines(t, registry, prefixes...); len(got) > 0 {
		t.Errorf("a replica that does not lead reports %q, want nothing", got)
	}
	close(leads)
	want := []string{
		"kaito_workspace_count deleting 1", "kaito_workspace_count error 4", "kaito_workspace_count pending 3", "kaito_workspace_count succeeded 2",
		"modelberth_workspaces deleting 1", "modelberth_workspaces ready 2", "modelberth_workspaces stalled 1",
		"modelberth_workspaces starting 1", "modelberth_workspaces suspended 2", "modelberth_workspaces unready 3",
		"modelberth_workspaces_planned vllm A 2",
		"modelberth_workspaces_stalled CannotServe 1", "modelberth_workspaces_stalled DoesNotFit 1", "modelberth_workspaces_stalled Quota 1",
	}
	if diff := cmp.Diff(want, metertest.Lines(t, registry, prefixes...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCauses: every error has one of the listed causes.
func TestCauses(t *testing.T) {
	of := schema.GroupResource{Resource: "pods"}
	tests := []struct {
		reason string
		err    error
		want   string
	}{
		{"a right is missing", apierrors.NewForbidden(of, "a", errors.New("no")), causeForbidden},
		{"no or an old token", apierrors.NewUnauthorized("no"), causeForbidden},
		{"wrapped", fmt.Errorf("applying: %w", apierrors.NewBadRequest("no")), causeRejected},
		{"a webhook refuses it", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), causeRejected},
		{"throttled", apierrors.NewTooManyRequests("later", 1), causeOverloaded},
		{"the API server is slow", apierrors.NewTimeoutError("slow", 1), causeTimeout},
		{"nobody answers in time", fmt.Errorf("reading: %w", context.DeadlineExceeded), causeTimeout},
		{"the API server fails", apierrors.NewInternalError(errors.New("etcd")), causeServer},
		{"no connection", &net.OpError{Op: "dial", Err: errors.New("refused")}, causeNetwork},
		{"anything else", errors.New("new"), causeOther},
	}
	var seen []string
	for _, test := range tests {
		got := causeOf(test.err)
		seen = append(seen, got)
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.reason, got, test.want)
		}
	}
	slices.Sort(seen)
	listed := causes()
	slices.Sort(listed)
	if diff := cmp.Diff(listed, slices.Compact(seen)); diff != "" {
		t.Errorf("causes with a label, and causes (-listed +seen):\n%s", diff)
	}
}

// slowPlanner is a planner that takes two seconds.
type slowPlanner struct {
	planning.Planner
	clock *testclock.FakePassiveClock
}

func (p slowPlanner) Plan(planner.Request) (planner.Plan, error) {
	p.clock.SetTime(p.clock.Now().Add(2 * time.Second))
	return planner.Plan{}, errors.New("nothing fits")
}

// TestPlanningMetric: failed plans count, too.
func TestPlanningMetric(t *testing.T) {
	registry, clock := prometheus.NewRegistry(), testclock.NewFakePassiveClock(now.Time)
	m, err := New(registry, &cooldown.Memory{}, clock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Planner{slowPlanner{clock: clock}, clock, m}).Plan(planner.Request{}); err == nil {
		t.Error("the planner's error is lost")
	}
	want := []string{"modelberth_planning_seconds 1 2s"}
	if diff := cmp.Diff(want, metertest.Lines(t, registry, "modelberth_planning_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSpentFor covers the states of a Workspace's machines.
func TestSpentFor(t *testing.T) {
	answering := workspaceObject()
	answering.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionInferenceReady, Status: metav1.ConditionTrue}}
	answering.Status.Attempts = []v1beta1.Attempt{
		{Number: 1, NodeClaims: []string{"lost"}, ReadyTime: &now, EndTime: &now, Reason: "Lost"},
		{Number: 2, NodeClaims: []string{"serves"}, ReadyTime: &now},
		{Number: 3, NodeClaims: []string{"comes"}},
	}
	silent := answering.DeepCopy()
	silent.Status.Conditions[0].Status = metav1.ConditionFalse
	tests := []struct {
		reason  string
		ws      *v1beta1.Workspace
		machine string
		pending bool
		want    string
	}{
		{"the model answers on it", answering, "serves", false, spentRunning},
		{"it is got beside the one that serves", answering, "comes", false, spentIdle},
		{"it is asked for beside the one that serves", answering, "comes", true, spentPending},
		{"it is on its way out", answering, "lost", false, spentIdle},
		{"no attempt is remembered", answering, "found", false, spentRunning},
		{"the model does not answer", silent, "serves", false, spentIdle},
		{"its Workspace is gone", nil, "serves", false, spentIdle},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := spentFor(test.ws, capacity.MachineCost{Machine: test.machine, Launched: !test.pending}); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}

// TestSpendingRates covers the hourly costs of machines in each state.
func TestSpendingRates(t *testing.T) {
	ready := workspaceObject()
	ready.UID = "ready"
	ready.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionInferenceReady, Status: metav1.ConditionTrue}}
	known := runtime.NewScheme()
	if err := v1beta1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	kube := fake.NewClientBuilder().WithScheme(known).WithObjects(ready).Build()
	of := func(uid types.UID, price float64, isLaunched bool) capacity.MachineCost {
		return capacity.MachineCost{Owner: capacity.Owner{UID: uid}, HourlyPrice: price, Launched: isLaunched}
	}
	costs := account{
		of("ready", 1, true), of("ready", 2, true), of("gone", 4, true), of("gone", 8, false), of("ready", -1, true),
	}
	registry, leads := prometheus.NewRegistry(), make(chan struct{})
	for range 2 { // another manager in one process
		if err := RegisterSpending(registry, kube, costs, leads); err != nil {
			t.Fatal(err)
		}
	}
	if got := metertest.Lines(t, registry, ofMoney()...); len(got) > 0 {
		t.Errorf("who does not lead tells %q, want nothing", got)
	}
	close(leads)
	want := []string{
		"modelberth_spending_usd_per_hour idle 4", "modelberth_spending_usd_per_hour pending 8", "modelberth_spending_usd_per_hour running 3",
	}
	if diff := cmp.Diff(want, metertest.Lines(t, registry, ofMoney()...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
